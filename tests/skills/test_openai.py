"""The endpoint client against a stub on this machine: retries, limits, the cache, and the key that is written nowhere."""

import asyncio
import json
import threading
from email.utils import format_datetime
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from seedlab.config.schema import AnalyzerConfig, EnvConfig, ExternalAnalyzerConfig
from seedlab.episodes.prompts import make_prompt_format
from seedlab.errors import UserError
from seedlab.skills.analyzers import write_skills
from seedlab.skills.openai import AnalyzerUnavailable, ExternalAnalyzer, retry_after
from seedlab.skills.prompts import SKILL_KEY

KEY = "sk-stub-5f2c9e"
GOOD = "open the desk first , then take the mug"


def completion(text=None, finish="stop", usage=(100, 20)):
    content = json.dumps({SKILL_KEY: GOOD}) if text is None else text
    return {
        "choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": finish}],
        "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]},
    }


class Stub:
    """Plays a list of answers (status, body, headers), the last one for ever; `release` ends what hangs."""

    def __init__(self):
        self.answers, self.requests, self.at_once, self.most = [], [], 0, 0
        self.lock, self.release = threading.Lock(), threading.Event()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with stub.lock:
                    stub.requests.append((self.path, dict(self.headers), body))
                    stub.at_once += 1
                    stub.most = max(stub.most, stub.at_once)
                    answer = stub.answers[min(len(stub.requests), len(stub.answers)) - 1]
                status, payload, headers = answer() if callable(answer) else answer
                with stub.lock:
                    stub.at_once -= 1
                data = payload.encode() if isinstance(payload, str) else json.dumps(payload).encode()
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except ConnectionError:
                    pass  # the client has given up on a hanging answer

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def close(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def stub(monkeypatch):
    monkeypatch.setenv("STUB_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Stub()
    yield server
    server.close()


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def label(stub, tmp_path, pauses, make_trajectory, chat):
    """Label trajectories against the stub; pauses are recorded, not slept."""

    def run(trajectories=None, **settings):
        cfg = ExternalAnalyzerConfig(
            kind="openai", model="m", api_key_env="STUB_KEY", **{"base_url": stub.url, "retries": 3, "timeout_s": 5.0, **settings}
        )

        async def sleep(seconds):
            pauses.append(seconds)
            await asyncio.sleep(0)

        run.analyzer = analyzer = ExternalAnalyzer(cfg, tmp_path / "cache", sleep=sleep)
        skills = write_skills(
            trajectories or [make_trajectory()], analyzer, make_prompt_format(EnvConfig()), chat, AnalyzerConfig(), key=lambda t: 0,
            snapshot=0, contract="json",
        ).skills
        return skills, analyzer.totals

    return run


def test_one_request_one_label(stub, label):
    stub.answers = [(200, completion(), {})]
    (skill,), totals = label(price_per_million_prompt=2.0, price_per_million_completion=10.0)
    assert (skill.text, skill.accepted, skill.analyzer, skill.tokens, skill.snapshot) == (GOOD, True, "openai:m", 20, -1)
    ((path, headers, body),) = stub.requests
    assert path == "/v1/chat/completions" and headers["Authorization"] == f"Bearer {KEY}"
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 4096)
    assert body["messages"][0]["role"] == "user" and "Outcome: success" in body["messages"][0]["content"]
    assert (totals.answers, totals.requests, totals.prompt_tokens, totals.completion_tokens) == (1, 1, 100, 20)
    assert totals.cost == totals.paid_now == pytest.approx(100 * 2e-6 + 20 * 1e-5)


def test_the_server_says_how_long_to_wait(stub, label, pauses):
    stub.answers = [(429, "slow down", {"Retry-After": "17"}), (200, completion(), {})]
    (skill,), totals = label()
    assert skill.accepted and pauses == [17.0] and totals.retries == 1


@pytest.mark.parametrize(
    "bad",
    [
        (502, "<html>Bad Gateway</html>", {}),
        (500, {"error": "x"}, {}),
        (429, {}, {}),
        (200, "<html>not JSON</html>", {}),
        (200, {"choices": []}, {}),
        (200, {"choices": [{"message": {"content": ["parts"]}}]}, {}),
        (200, [], {}),
    ],
    ids=["502 html", "500", "429", "200 html", "no choices", "no text", "list"],
)
def test_what_passes_is_tried_again_with_growing_pauses(stub, label, pauses, bad):
    stub.answers = [bad, bad, (200, completion(), {})]
    (skill,), totals = label()
    assert skill.accepted and (totals.requests, totals.retries, totals.answers) == (3, 2, 1)
    assert 0.5 <= pauses[0] <= 1.0 and 1.0 <= pauses[1] <= 2.0


def test_a_hanging_answer_is_given_up(stub, label):
    def hang():
        stub.release.wait(20)
        return 200, completion("late"), {}

    stub.answers = [hang, (200, completion(), {})]
    (skill,), totals = label(timeout_s=0.3)
    assert skill.text == GOOD and totals.retries == 1


def test_an_answer_that_trickles_is_given_up_as_well(stub, tmp_path, make_trajectory, chat):
    class Trickle(httpx.AsyncBaseTransport):  # httpx's own limit never strikes while bytes arrive
        async def handle_async_request(self, request):
            await asyncio.sleep(3)
            return httpx.Response(200, json=completion())

    cfg = ExternalAnalyzerConfig(base_url=stub.url, api_key_env="STUB_KEY", timeout_s=0.1, retries=0)
    analyzer = ExternalAnalyzer(cfg, tmp_path, transport=Trickle())
    with pytest.raises(AnalyzerUnavailable, match="no answer within 0.1 s"):
        write_skills(
            [make_trajectory()], analyzer, make_prompt_format(EnvConfig()), chat, AnalyzerConfig(), key=lambda t: 0, snapshot=0
        )


def test_a_dead_endpoint_ends_with_a_message_that_says_how_to_go_on(stub, label, tmp_path):
    stub.answers = [(503, "maintenance", {})]
    with pytest.raises(AnalyzerUnavailable, match=r"u000000/a/n0: .* in 3 tries; .*503: maintenance.*cache"):
        label(retries=2)
    assert len(stub.requests) == 3
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("status, message", [(401, "refused the key in STUB_KEY"), (403, "refused the key"), (404, "status 404"), (400, "status 400")])
def test_what_does_not_pass_is_not_tried_again(stub, label, status, message):
    stub.answers = [(status, {"error": f"bad request with key {KEY}"}, {})]
    with pytest.raises(AnalyzerUnavailable, match=message):
        label()
    assert len(stub.requests) == 1


def test_an_answer_cut_by_its_length_is_kept_and_rejected(stub, label):
    stub.answers = [(200, completion('{"episode_skill": "open the', finish="length"), {})]
    (skill,), _ = label()
    assert (skill.accepted, skill.reason) == (False, "cut")
    assert label()[1].cached == 1


def test_an_answer_without_text_is_an_empty_skill(stub, label):
    answer = completion()
    answer["choices"][0]["message"]["content"] = None
    stub.answers = [(200, answer, {})]
    (skill,), _ = label()
    assert skill.reason == "empty"


def test_a_restart_pays_nothing_twice(stub, label, tmp_path):
    stub.answers = [(200, completion(), {})]
    first, before = label(price_per_million_completion=1.0)
    again, after = label(price_per_million_completion=1.0)
    assert again == first and len(stub.requests) == 1
    assert (after.cached, after.requests, after.paid_now) == (1, 0, 0.0)
    assert (after.answers, after.prompt_tokens, after.cost) == (before.answers, before.prompt_tokens, before.cost)
    (file,) = (tmp_path / "cache").iterdir()
    assert len(file.stem) == 64 and json.loads(file.read_text())["content"] == json.dumps({SKILL_KEY: GOOD})


@pytest.mark.parametrize("change", [{"model": "m2"}, {"temperature": 0.5}, {"max_tokens": 9}])
def test_another_request_is_another_answer(stub, tmp_path, change, make_trajectory, chat):
    stub.answers = [(200, completion(), {})]
    settings = {"model": "m", "temperature": 0.0, "max_tokens": 8}
    for values in (settings, settings | change):
        cfg = ExternalAnalyzerConfig(base_url=stub.url, api_key_env="STUB_KEY", **values)
        write_skills(
            [make_trajectory()], ExternalAnalyzer(cfg, tmp_path), make_prompt_format(EnvConfig()), chat, AnalyzerConfig(),
            key=lambda t: 0, snapshot=0, contract="json",
        )
    assert len(stub.requests) == 2 and len(list(tmp_path.iterdir())) == 2


def test_equal_trajectories_are_asked_once(stub, label, make_trajectory):
    stub.answers = [(200, completion(), {})]
    skills, totals = label([make_trajectory(f"u000000/a/n{n}") for n in range(4)])
    assert len(skills) == 4 and len(stub.requests) == 1
    assert (totals.answers, totals.cached, totals.completion_tokens) == (1, 3, 20)


def test_answers_under_way_are_kept_when_another_request_fails(stub, label, make_trajectory, tmp_path):
    gate = threading.Barrier(2, timeout=10)

    def refuse():
        gate.wait()
        return 400, "no", {}

    def late():
        gate.wait()
        threading.Event().wait(0.2)
        return 200, completion(), {}

    stub.answers = [refuse, late]
    trajectories = [make_trajectory(f"u000000/a/n{n}", turns=n + 1) for n in range(5)]
    with pytest.raises(AnalyzerUnavailable, match="status 400"):
        label(trajectories, concurrency=2)
    assert len(stub.requests) == 2  # the other three were never asked
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_concurrency_is_bounded(stub, label, make_trajectory):
    def slow():
        threading.Event().wait(0.05)
        return 200, completion(), {}

    stub.answers = [slow]
    label([make_trajectory(f"u000000/a/n{n}", turns=n + 1) for n in range(6)], concurrency=2)
    assert stub.most == 2 and len(stub.requests) == 6


def test_the_rate_limit_spaces_every_request(stub, label, make_trajectory, pauses):
    stub.answers = [(200, completion(), {})]
    label([make_trajectory(f"u000000/a/n{n}", turns=n + 1) for n in range(4)], requests_per_minute=60)
    assert len(pauses) == 3
    assert all(abs(p - k) < 0.5 for k, p in enumerate(sorted(pauses), 1))


def test_a_damaged_cache_file_is_named(stub, label, tmp_path):
    stub.answers = [(200, completion(), {})]
    label()
    (file,) = (tmp_path / "cache").iterdir()
    file.write_text('{"content": "x"')
    with pytest.raises(UserError, match=f"{file.name}.*delete it"):
        label()


def test_the_key_is_in_no_file_message_or_representation(stub, label, tmp_path, capfd, make_trajectory):
    stub.answers = [(200, completion(f"your key is {KEY} and so on and on"), {}), (500, f"log: Bearer {KEY}", {})]
    label()
    with pytest.raises(AnalyzerUnavailable) as caught:
        label([make_trajectory(turns=5)], retries=1)
    assert "[key]" in str(caught.value)
    error, chain = caught.value, []
    while error is not None:
        chain += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    files = [p.read_text() for p in tmp_path.rglob("*") if p.is_file()]
    out = capfd.readouterr()
    assert files and KEY not in "".join([*files, *chain, repr(label.analyzer), str(vars(label.analyzer)), out.out, out.err])


@pytest.mark.parametrize("value", ["", "  ", "two words", "sk-\u00e9", "sk\nx"])
def test_an_unusable_key_is_named_by_its_variable_alone(tmp_path, monkeypatch, value):
    monkeypatch.setenv("STUB_KEY", value)
    with pytest.raises(UserError, match="STUB_KEY") as caught:
        ExternalAnalyzer(ExternalAnalyzerConfig(api_key_env="STUB_KEY"), tmp_path / "c")
    assert not value.strip() or value not in str(caught.value)


def test_an_address_that_is_none_is_said_at_once(label, pauses):
    with pytest.raises(AnalyzerUnavailable, match="external.base_url=localhost:1 "):
        label(base_url="localhost:1")
    assert pauses == []


def test_retry_after_is_seconds_or_a_date():
    assert retry_after(None) == 0.0
    assert retry_after("3") == 3.0
    assert retry_after("soon") == 0.0
    moment = datetime.now(timezone.utc) + timedelta(seconds=30)
    assert 27 < retry_after(format_datetime(moment, usegmt=True)) <= 30
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry_after("Wed, 21 Oct 2015 07:28:00 -0000") == 0.0
