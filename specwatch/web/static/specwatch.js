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
          var done = document.execCommand("copy");
          if (done) { chosen.removeAllRanges(); }
          said(done ? "Copied" : "Selected: copy it by hand");
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
  var clock = document.getElementById("read");
  var paused = false;
  function focusable() {
    return Array.prototype.slice.call(main.querySelectorAll("a, button, pre"));
  }
  function meant(one) {
    var code = one.parentElement.querySelector("pre");
    return code ? code.textContent : one.textContent;
  }
  function said() {
    document.getElementById("paused").hidden = !paused;
  }
  setInterval(function () {
    if (document.hidden) { return; }
    var chosen = window.getSelection();
    paused = Boolean(String(chosen)) && main.contains(chosen.anchorNode);
    said();
    if (paused) { return; }
    fetch(location.href, { headers: { Accept: "text/html" } }).then(function (answer) {
      return answer.ok ? answer.text() : Promise.reject(new Error(String(answer.status)));
    }).then(function (text) {
      var fresh = new DOMParser().parseFromString(text, "text/html");
      if (String(window.getSelection())) { return; }
      var place = focusable().indexOf(document.activeElement);
      var name = place < 0 ? "" : meant(document.activeElement);
      main.innerHTML = fresh.querySelector("main").innerHTML;
      document.title = fresh.title;
      clock.textContent = fresh.getElementById("read").textContent;
      copies(main);
      var again = focusable()[place];
      if (again && meant(again) === name) { again.focus({ preventScroll: true }); }
    }).catch(function () {
      var lost = document.getElementById("lost");
      if (lost) { lost.hidden = false; }
    });
  }, 10000);
})();
