// The page works without this: it adds copy buttons, and keeps the overview fresh while nobody is using it.
"use strict";
(function () {
  function copies(scope) {
    scope.querySelectorAll("button.copy[hidden]").forEach(function (button) {
      button.hidden = false;
      button.addEventListener("click", function () {
        var code = button.parentElement.querySelector("pre");
        var text = code.textContent;
        function said(word) {
          var before = button.dataset.label;
          button.textContent = word;
          setTimeout(function () { button.textContent = before; }, 2500);
        }
        function byHand() {
          var range = document.createRange();
          range.selectNodeContents(code);
          var chosen = window.getSelection();
          chosen.removeAllRanges();
          chosen.addRange(range);
          said(document.execCommand("copy") ? "Copied" : "Selected: copy it by hand");
        }
        if (navigator.clipboard && window.isSecureContext) {
          navigator.clipboard.writeText(text).then(function () { said("Copied"); }, byHand);
        } else {
          byHand();
        }
      });
    });
  }
  copies(document);
  var main = document.querySelector("main[data-fresh]");
  if (!main) { return; }
  setInterval(function () {
    var busy = document.hidden || main.contains(document.activeElement) || String(window.getSelection()) ||
      main.querySelector("details[open]");
    if (busy) { return; }
    fetch(location.href, { headers: { Accept: "text/html" } }).then(function (answer) {
      return answer.ok ? answer.text() : Promise.reject(new Error(String(answer.status)));
    }).then(function (text) {
      var fresh = new DOMParser().parseFromString(text, "text/html");
      main.innerHTML = fresh.querySelector("main").innerHTML;
      document.title = fresh.title;
      copies(main);
    }).catch(function () {
      var lost = document.getElementById("lost");
      if (lost) { lost.hidden = false; }
    });
  }, 10000);
})();
