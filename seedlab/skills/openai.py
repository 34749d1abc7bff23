"""Labels from any OpenAI-compatible chat endpoint: every answer is on disk before it is used.

The key is read from the environment variable that the configuration names.  It stands in the request's header only,
and is struck out of everything that an endpoint sends back.
"""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
import json
import os
import random
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Awaitable, Callable

import httpx

from seedlab.config.schema import ExternalAnalyzerConfig
from seedlab.episodes.records import Trajectory
from seedlab.errors import UserError
from seedlab.skills.analyzers import RawSkill
from seedlab.skills.prompts import AnalyzerPrompt

_RETRIED = frozenset({408, 409, 425, 429})
_LONGEST_PAUSE = 60.0  # seconds of back-off; a server's Retry-After may ask for more
_EXCERPT = 300  # characters of a server's answer shown in a message


class AnalyzerUnavailable(UserError):
    """The endpoint refused, or gave no usable answer in all tries; answers received so far are cached."""


class _TryAgain(Exception):
    def __init__(self, reason: str, wait: float = 0.0):
        super().__init__(reason)
        self.wait = wait


@dataclass
class Totals:
    """What the answers of this analyzer took.  Each distinct answer is counted once, whenever it was paid for;
    `requests` (failed ones included), `retries` and `paid_now` belong to this process.  Costs in the price's currency."""

    answers: int = 0
    cached: int = 0
    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    paid_now: float = 0.0


class ExternalAnalyzer:
    """An endpoint behind the analyzer interface, with answers cached in `cache` (a folder) by their request's hash.

    Raises UserError where the key's environment variable is not set.  `sleep` is for tests.
    """

    def __init__(
        self, cfg: ExternalAnalyzerConfig, cache: Path, *, transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ):
        self.cfg, self.cache, self.totals = cfg, Path(cache), Totals()
        self._transport, self._sleep = transport, sleep
        self._counted: set[str] = set()
        _key(cfg)
        self.cache.mkdir(parents=True, exist_ok=True)

    async def __aenter__(self):
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {_key(self.cfg)}"}, timeout=self.cfg.timeout_s, transport=self._transport
        )
        self._slots = asyncio.Semaphore(self.cfg.concurrency)
        self._in_flight: dict[str, asyncio.Lock] = {}
        self._next_start = 0.0
        self._failure: AnalyzerUnavailable | None = None
        return self

    async def __aexit__(self, *error):
        await self._client.aclose()

    def expect(self, analyses: int) -> None:
        return None

    def leave(self) -> None:
        return None

    async def analyze(self, trajectory: Trajectory, prompt: AnalyzerPrompt, key: int) -> RawSkill:
        """The endpoint's answer.  `key` is not used: at the same request, the cached answer is the answer."""
        body = {
            "model": self.cfg.model, "messages": prompt.messages, "temperature": self.cfg.temperature,
            "max_tokens": self.cfg.max_tokens,
        }
        name = hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
        # Equal trajectories of a group ask the same; only the first one pays.
        async with self._in_flight.setdefault(name, asyncio.Lock()):
            path = self.cache / f"{name}.json"
            record = self._read(path)
            if record is None:
                async with self._slots:
                    try:
                        record = await self._ask(body, trajectory.id)
                    except AnalyzerUnavailable as error:
                        # Answers under way may still arrive and be kept, but nothing new is asked.
                        self._failure = self._failure or error
                        raise
                write_atomically(path, json.dumps({"request": body, **record}, ensure_ascii=False, indent=1))
                self.totals.paid_now += self._price(record)
            else:
                self.totals.cached += 1
            if name not in self._counted:
                self._counted.add(name)
                self.totals.answers += 1
                self.totals.prompt_tokens += record["prompt_tokens"]
                self.totals.completion_tokens += record["completion_tokens"]
                self.totals.cost += self._price(record)
        return RawSkill(
            record["content"], record["finish"], record["prompt_tokens"], record["completion_tokens"],
            f"openai:{self.cfg.model}",
        )

    def _price(self, record: dict) -> float:
        return (
            record["prompt_tokens"] * self.cfg.price_per_million_prompt
            + record["completion_tokens"] * self.cfg.price_per_million_completion
        ) / 1e6

    def _read(self, path: Path) -> dict | None:
        if not path.exists():
            return None
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            return {k: record[k] for k in ("content", "finish", "prompt_tokens", "completion_tokens")}
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"the cached answer {path} is damaged ({error}); delete it to ask again") from error

    async def _ask(self, body: dict, who: str) -> dict:
        for attempt in range(self.cfg.retries + 1):
            await self._wait_for_turn()
            if self._failure is not None:
                raise self._failure
            self.totals.requests += 1
            try:
                return await self._request(body, who)
            except _TryAgain as error:
                reason, asked = str(error), error.wait
            if attempt < self.cfg.retries:
                self.totals.retries += 1
                pause = min(_LONGEST_PAUSE, 2.0**attempt) * (0.5 + random.random() / 2)
                await self._sleep(max(asked, pause))
        raise AnalyzerUnavailable(
            f"{who}: {self.cfg.base_url} gave no usable answer in {self.cfg.retries + 1} tries; the last one: {reason}. "
            f"Start again to go on: answers so far are in {self.cache}"
        )

    async def _wait_for_turn(self) -> None:
        """Starts of requests are at least 60 / requests_per_minute seconds apart, retries included."""
        if self.cfg.requests_per_minute is None:
            return
        now = time.monotonic()
        start = max(now, self._next_start)
        self._next_start = start + 60.0 / self.cfg.requests_per_minute
        if start > now:
            await self._sleep(start - now)

    async def _request(self, body: dict, who: str) -> dict:
        url = self.cfg.base_url.rstrip("/") + "/chat/completions"
        try:
            async with asyncio.timeout(self.cfg.timeout_s):  # httpx's own limit starts anew with every byte
                response = await self._client.post(url, json=body)
        except (TimeoutError, httpx.TimeoutException):
            raise _TryAgain(f"no answer within {self.cfg.timeout_s:g} s") from None
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise AnalyzerUnavailable(f"external.base_url={self.cfg.base_url} is no address of an endpoint: {error}") from None
        except httpx.RequestError as error:
            raise _TryAgain(self._clean(f"{type(error).__name__}: {error}")) from None
        text = self._clean(response.text)
        status = response.status_code
        if status in _RETRIED or status >= 500:
            raise _TryAgain(f"status {status}: {text[:_EXCERPT]}", retry_after(response.headers.get("Retry-After")))
        if status in (401, 403):
            raise AnalyzerUnavailable(
                f"{self.cfg.base_url} refused the key in {self.cfg.api_key_env} (status {status}): {text[:_EXCERPT]}"
            )
        if status != 200:
            raise AnalyzerUnavailable(f"{who}: {url} answered with status {status}: {text[:_EXCERPT]}")
        return _parse_answer(text)

    def _clean(self, text: str) -> str:
        return text.replace(_key(self.cfg), "[key]")

    def __repr__(self) -> str:
        return f"ExternalAnalyzer(model={self.cfg.model!r}, base_url={self.cfg.base_url!r}, cache={str(self.cache)!r})"


def require_key(cfg: ExternalAnalyzerConfig) -> None:
    """Raises UserError where the endpoint's key is not in the environment, or cannot be one."""
    _key(cfg)


def _key(cfg: ExternalAnalyzerConfig) -> str:
    """The key from the environment; the messages of its errors do not show it."""
    key = os.environ.get(cfg.api_key_env, "").strip()
    if not key:
        raise UserError(f"external.api_key_env names {cfg.api_key_env}, which is not set; export the key of {cfg.base_url} there")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UserError(f"the key in {cfg.api_key_env} holds characters that no HTTP header can carry; export it again")
    return key


def _parse_answer(text: str) -> dict:
    try:
        answer = json.loads(text)
        choice = answer["choices"][0]
        content = choice["message"].get("content") or ""  # a model that only reasoned sends null
        usage = answer.get("usage") or {}
        record = {
            "content": content,
            "finish": choice.get("finish_reason") or "stop",
            "prompt_tokens": int(usage.get("prompt_tokens") or 0),
            "completion_tokens": int(usage.get("completion_tokens") or 0),
        }
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise _TryAgain(f"not a chat completion ({type(error).__name__}): {text[:_EXCERPT]}") from None
    if not isinstance(content, str):
        raise _TryAgain(f"the message's content is {type(content).__name__}, not text: {text[:_EXCERPT]}")
    return record


def retry_after(value: str | None) -> float:
    """Seconds that a Retry-After header asks for (a number, or an HTTP date); 0 where there is none to be read."""
    if value is None:
        return 0.0
    if value.strip().isdigit():
        return float(value)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - datetime.now(timezone.utc)).total_seconds())


def write_atomically(path: Path, text: str) -> None:
    """All of `text` or nothing, even if the process dies meanwhile."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
