"""The page in a real Chromium, over a real daemon that watches a hostile log: looks, copies, works without scripts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from webbox import EXAMPLES, daemon, get, until

ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
TOKEN = "0123456789abcdef0123456789abcdef"
HOSTILE = "<script>window.pwned = 1</script><img src=x onerror=window.pwned=1>\x1b[31m\x1b]0;title\x07\u202e"


def hostile_log() -> bytes:
    """A crash that no rule knows, full of what a stranger may put into a log."""
    return (
        "[2026-07-02 09:14:29] server_args=ServerArgs(model_path='/models/"
        + HOSTILE.replace("'", "")
        + "', tp_size=2)\n"
        f"[2026-07-02 09:14:30] {'A' * 1_000_000}\n"
        f"[2026-07-02 09:14:30 TP0] {HOSTILE}\n"
        "[2026-07-02 09:14:31 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process\n'
        f"    {HOSTILE}\n"
        f"RuntimeError: {HOSTILE} {'B' * 500_000}\n"
        "\n"
        "[2026-07-02 09:14:31] Received sigquit from a child process. It usually means the child failed.\n"
    ).encode()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("browser")
    logs = {"llama-70b": folder / "llama.log", "qwen": folder / "qwen.log"}
    for log in logs.values():
        log.write_bytes(b"")
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    # nobody listens at port 1: without a health endpoint nothing could be approved for a script
    target = f'target = "script:{EXAMPLES / "launch.sh"}"\nhealth = "http://127.0.0.1:1/health"\n'
    with daemon(folder, logs, f'token_file = "{token}"\n', target) as url:
        logs["llama-70b"].write_bytes((EXAMPLES / "server.log").read_bytes())
        logs["qwen"].write_bytes(hostile_log())
        until(lambda: len([one for one in servers(url) if one["firing"]]) == 2)
        until(lambda: '"broken"' in get(f"{url}/api/v1/findings/llama-70b/{finding(url, 'llama-70b')}")[1])
        yield url


def servers(url: str) -> list[dict[str, list[str]]]:
    found: list[dict[str, list[str]]] = json.loads(get(f"{url}/api/v1/servers")[1])["servers"]
    return found


def finding(url: str, server: str) -> str:
    return next(one["firing"][0] for one in servers(url) if one["name"] == server)  # type: ignore[comparison-overlap]


@contextmanager
def chromium(folder: Path, *, scripts: bool = True) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (*ARGUMENTS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    if not scripts:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


def pages(url: str) -> list[str]:
    return [
        f"{url}/", f"{url}/audit", f"{url}/nothing",
        *(f"{url}/servers/{name}" for name in ("llama-70b", "qwen")),
        *(f"{url}/findings/{name}/{finding(url, name)}" for name in ("llama-70b", "qwen")),
    ]  # fmt: skip


def complaints(driver: webdriver.Chrome) -> list[str]:
    """What the browser's console says, the page that there is not left out."""
    log: list[dict[str, str]] = driver.get_log("browser")  # type: ignore[no-untyped-call]
    expected = ("/nothing", "/approve")  # a page that there is not, a token that is wrong
    return [one["message"] for one in log if not any(path in one["message"] for path in expected)]


def shown(driver: webdriver.Chrome) -> str:
    """The text of the page, whichever it is by now."""
    return str(driver.execute_script("return document.querySelector('main')?.innerText ?? ''"))


def size(driver: webdriver.Chrome, width: int, height: int = 800) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.mark.parametrize("width", [360, 768, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_and_nothing_of_a_log_runs(
    browser: webdriver.Chrome, url: str, width: int, scheme: str
) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size(browser, width)
    for page in pages(url):
        browser.get(page)
        browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert browser.execute_script("return window.pwned === undefined"), page
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
        # the style came through our own policy: nothing is as a browser would draw it without
        ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(246, 246, 243)" if scheme == "light" else "rgb(17, 20, 23)")
        assert not browser.find_elements(By.CSS_SELECTOR, "img, main script, iframe, [style], [onclick]")
    assert complaints(browser) == [], "the policy was violated, or a script failed"


def test_hostile_text_is_shown_as_what_it_is(browser: webdriver.Chrome, url: str) -> None:
    browser.get(f"{url}/findings/qwen/{finding(url, 'qwen')}")
    root = browser.find_element(By.ID, "root").text
    assert "RuntimeError: <script>window.pwned = 1</script>" in root
    assert "\x1b" not in root
    assert "\\x202e" in root
    assert "[cut by specwatch: the line has 500100 bytes]" in root
    assert len(browser.page_source) < 400_000, "lines of a megabyte are cut"


def test_the_overview_has_the_command_in_sight_of_a_phone(browser: webdriver.Chrome, url: str) -> None:
    size(browser, 360, 740)
    browser.get(url)
    assert browser.find_element(By.TAG_NAME, "h1").text == "2 of 2 servers broken"
    first = browser.find_element(By.CSS_SELECTOR, ".command pre")
    assert first.rect["y"] + 20 < 740, "the command begins on the first screen"
    assert "sglang.launch_server" in first.text


def test_a_command_is_copied_byte_for_byte(browser: webdriver.Chrome, url: str) -> None:
    name = finding(url, "llama-70b")
    answer = json.loads(get(f"{url}/api/v1/findings/llama-70b/{name}")[1])["finding"]
    browser.execute_cdp_cmd(
        "Browser.grantPermissions",
        {"origin": url, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]},
    )
    browser.get(f"{url}/findings/llama-70b/{name}")
    for number, button in enumerate(browser.find_elements(By.CSS_SELECTOR, "section button.copy")):
        button.click()
        until(lambda: button.text == "Copied")  # noqa: B023 - asked at once
        read = "navigator.clipboard.readText().then(arguments[0], e => arguments[0](String(e)))"
        assert browser.execute_async_script(read) == answer["fixes"][number]["command"]


def test_the_keyboard_reaches_everything(browser: webdriver.Chrome, url: str) -> None:
    size(browser, 1280)
    browser.get(f"{url}/findings/llama-70b/{finding(url, 'llama-70b')}")
    reached: list[str] = []
    for _ in range(60):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        now: WebElement = browser.switch_to.active_element
        if now.tag_name == "body":
            break
        outline = now.value_of_css_property("outline-style")
        assert outline != "none", f"the focus on {now.tag_name} is not to be seen"
        reached.append(f"{now.tag_name} {now.text[:20]}")
    assert reached[0] == "a To the content"
    assert "button Copy the command" in reached
    assert any(one.startswith("summary") for one in reached)
    assert "a The same as JSON" in reached


def test_landmarks_and_names(browser: webdriver.Chrome, url: str) -> None:
    for page in pages(url):
        browser.get(page)
        assert browser.find_element(By.TAG_NAME, "html").get_attribute("lang") == "en"
        for tag in ("header", "main", "footer", "h1"):
            assert len(browser.find_elements(By.TAG_NAME, tag)) == 1, (page, tag)
        for svg in browser.find_elements(By.CSS_SELECTOR, "svg:not([aria-hidden])"):
            assert svg.get_attribute("aria-label")
        assert "specwatch" in browser.title


def test_the_overview_renews_itself_and_leaves_a_reader_alone(browser: webdriver.Chrome, url: str) -> None:
    browser.get(url)
    old = browser.find_element(By.CSS_SELECTOR, "section.card")
    until(lambda: stale(old))
    assert browser.find_element(By.TAG_NAME, "h1").text == "2 of 2 servers broken"
    assert browser.find_element(By.CSS_SELECTOR, "button.copy").is_displayed()


def test_the_overview_renews_itself_under_the_focus_and_not_under_a_selection(
    browser: webdriver.Chrome, url: str
) -> None:
    browser.get(url)
    button = browser.find_element(By.CSS_SELECTOR, "button.copy")
    button.click()
    until(lambda: stale(button))
    assert browser.switch_to.active_element.get_attribute("class") == "copy"
    old = browser.find_element(By.CSS_SELECTOR, "section.card")
    browser.execute_script("getSelection().selectAllChildren(document.querySelector('section.card h2'))")
    until(lambda: browser.find_element(By.ID, "paused").is_displayed())
    assert not stale(old)


def stale(element: WebElement) -> bool:
    from selenium.common.exceptions import StaleElementReferenceException

    try:
        element.is_displayed()
    except StaleElementReferenceException:
        return True
    return False


def test_without_scripts_everything_is_there_but_the_buttons(url: str, tmp_path: Path) -> None:
    with chromium(tmp_path, scripts=False) as driver:
        driver.get(f"{url}/findings/llama-70b/{finding(url, 'llama-70b')}")
        assert "sglang.launch_server" in driver.find_element(By.CSS_SELECTOR, ".command pre").text
        assert driver.find_element(By.ID, "root").is_displayed()
        assert not any(one.is_displayed() for one in driver.find_elements(By.CSS_SELECTOR, "button.copy"))
        fold = driver.find_element(By.CSS_SELECTOR, "details summary")
        fold.click()
        assert driver.find_element(By.CSS_SELECTOR, "details[open] li").is_displayed()


def test_a_fix_is_approved_with_the_token_only(browser: webdriver.Chrome, url: str) -> None:
    size(browser, 360)
    browser.get(f"{url}/findings/llama-70b/{finding(url, 'llama-70b')}")
    browser.find_element(By.LINK_TEXT, "See what will run, and approve").click()
    until(lambda: "launch.sh" in shown(browser))
    summaries = browser.find_elements(By.CSS_SELECTOR, "details summary")
    assert summaries
    for summary in summaries:
        assert "Is the cause proved?" not in shown(browser)
        summary.click()
        until(lambda: "Is the cause proved? yes" in shown(browser))
        assert "Is the server really down? asked when it is applied" in shown(browser)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
        summary.click()
    for token, heading in (("a wrong one", "That is not the token."), (TOKEN, "Approved")):
        browser.find_element(By.CSS_SELECTOR, "input[value=drop-speculation]").click()
        browser.find_element(By.ID, "token").send_keys(token)
        browser.find_element(By.CSS_SELECTOR, "button.go").click()
        until(lambda: heading in shown(browser))  # noqa: B023 - asked at once
    assert "drop-speculation for llama-70b is approved" in shown(browser)
    assert TOKEN not in browser.current_url


Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_one_file_for_a_ticket(
    browser: webdriver.Chrome, specwatch: Run, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(hostile_log())
    state = ["--state", str(tmp_path / "state")]
    done = specwatch("watch", "--once", *state, "--log", log)
    assert done.returncode == 1, done.stderr
    (found,) = json.loads(specwatch("findings", "list", *state, "--format", "json").stdout)["findings"]
    page = tmp_path / "finding.html"
    done = specwatch("findings", "show", found["id"][:6], *state, "--html", page)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "open it in a browser" in done.stderr
    text = page.read_text()
    assert set(re.findall(r"<[^>]*\b(?:src|href)=[^>]*>", text)) == {'<a class="skip" href="#main">'}
    assert "<script" not in text
    browser.get(page.as_uri())
    assert browser.execute_script("return window.pwned === undefined && document.styleSheets.length === 1")
    assert browser.execute_script("return getComputedStyle(document.querySelector('h1')).fontWeight") == "700"
    assert "RuntimeError: <script>" in browser.find_element(By.ID, "root").text
    assert complaints(browser) == []
    assert specwatch("findings", "show", found["id"], *state, "--html", "-").stdout.startswith("<!doctype html>")
    assert specwatch("findings", "show", "zzz", *state, "--html", "-").returncode == 2
    assert specwatch("findings", "show", found["id"], *state, "--html", tmp_path / "no" / "x").returncode == 2


def test_a_taken_port_is_said_at_the_start(url: str, tmp_path: Path) -> None:
    config = tmp_path / "specwatch.toml"
    listen = url.removeprefix("http://")
    config.write_text(
        f'[[server]]\nname = "a"\nlogs = ["{tmp_path}/a.log"]\n'
        f'[state]\ndir = "{tmp_path}/s"\n[web]\nlisten = "{listen}"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "specwatch.cli", "watch", "--config", str(config), "--allow-insecure-permissions"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"[web] listen = '{listen}': Address already in use" in done.stderr
