"""Chat messages to token ids and back, with the tokenizer's own template.

Three rules hold here and nowhere else.  The template is applied to the whole conversation, so a default system prompt
and a beginning-of-sequence token appear once.  Text that came from outside (observations, skills, decoded responses)
never becomes a control token.  Sampled ids are carried on from turn to turn, never tokenised again.
"""

from __future__ import annotations

import hashlib
import re
from typing import Iterable, Sequence

from seedlab.errors import UserError

Messages = Sequence[dict]

# Supplementary private-use plane A: text from outside has no business with it, and where it does another range is taken.
_PRIVATE_USE, _PRIVATE_USE_END = 0xF0000, 0xFFFFD


_TEXTS_KEPT = 512


class ChatRenderer:
    """Renders, extends and decodes conversations of one tokenizer.

    `enable_thinking` is passed to the template where it is not None.  `stop_ids` are further ids that end a response
    (those of a model's generation_config); `end_of_turn` is the one that the template writes behind an assistant's
    turn.  Raises UserError where the tokenizer has no chat template or no token that ends a turn.
    """

    def __init__(self, tokenizer, *, enable_thinking: bool | None = None, stop_ids: Iterable[int] = ()):
        self.tokenizer = tokenizer
        self.name = tokenizer.name_or_path or type(tokenizer).__name__
        if not tokenizer.chat_template:
            raise UserError(
                f"the tokenizer of {self.name} has no chat template; use an instruct model, or save one into its folder "
                "(tokenizer.chat_template, or chat_template.jinja)"
            )
        self.template_hash = hashlib.sha256(tokenizer.get_chat_template().encode()).hexdigest()[:16]
        self._texts: dict[tuple, str] = {}
        self._options = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        special = {token.content: id for id, token in tokenizer.added_tokens_decoder.items() if token.special}
        special |= dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids))
        # Longest first: where one control token is the beginning of another, the longer one is meant.
        self._control = {text: special[text] for text in sorted(special, key=lambda t: (-len(t), t)) if text}
        self._control_ids = frozenset(self._control.values())
        self._control_pattern = re.compile("|".join(map(re.escape, self._control)) or r"(?!)")
        self.stop_ids = self._find_stop_ids(stop_ids)
        end = self._template_end()
        self.end_of_turn = self.stop_ids[0] if end is None else end

    # ---- messages to ids

    def render(self, messages: Messages, *, generation_prompt: bool = True) -> list[int]:
        """Ids of the whole conversation.

        Equal to ``tokenizer.apply_chat_template(messages, tokenize=True)`` where no content holds a control token;
        otherwise each such string is encoded as the plain text that it is.
        """
        marks = self._marks(messages)
        return self._encode(self._text(messages, marks, generation_prompt), marks)

    def extend(
        self, prompt_ids: Sequence[int], response_ids: Sequence[int], messages_before: Messages, messages_after: Messages
    ) -> list[int] | None:
        """The next prompt of an episode: ids already seen, sampled ids, then the template's glue and the new turns.

        `prompt_ids` stand for `messages_before`; `messages_after` is `messages_before`, the assistant's turn with the
        text of `response_ids`, and what follows.  A response that was cut gets the end of turn that it lacks; one that
        ended keeps its own.  White space at the two ends of the response may differ, as some templates trim it.

        None where the template's text does not continue what was seen (it drops past reasoning, turns were left out,
        the response holds control tokens): the caller then renders afresh, and a new row begins.
        """
        seen = len(messages_before)
        if list(messages_after[:seen]) != list(messages_before) or len(messages_after) <= seen:
            return None
        turn = messages_after[seen]
        ended = bool(response_ids) and response_ids[-1] in self.stop_ids
        sampled = response_ids[:-1] if ended else response_ids
        if turn["role"] != "assistant" or turn["content"] != self.decode(response_ids):
            return None
        if not self._control_ids.isdisjoint(sampled):
            return None
        marks = self._marks(messages_after)
        before, after = self._text(messages_before, marks, True), self._text(messages_after, marks, True)
        if not after.startswith(before):
            return None
        glue = _after_response(after[len(before) :], self._neutral(turn["content"], marks))
        if glue is None:
            return None
        if not ended:
            return [*prompt_ids, *response_ids, *self._encode(glue, marks)]
        # Encoded together with the end-of-turn token, which is then dropped: some tokenizers treat a text's start apart.
        glue_ids = self._encode(glue.lstrip(), marks)
        if glue_ids[:1] != [response_ids[-1]]:
            return None
        return [*prompt_ids, *response_ids, *glue_ids[1:]]

    def encode(self, text: str) -> list[int]:
        """Ids of `text` as plain text, whatever it looks like."""
        return self._plain(text)

    def count(self, text: str) -> int:
        """Tokens of `text` as plain text."""
        return len(self._plain(text))

    # ---- ids to text

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a response: without its end-of-turn token and without any other control token."""
        kept = [id for id in ids if id not in self._control_ids and id not in self.stop_ids]
        return self.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    # ---- inside

    def _marks(self, messages: Messages) -> dict[str, str]:
        """A private-use character for each control token that occurs in a content; empty where none does."""
        contents = "\n".join(m["content"] for m in messages)
        found = set(self._control_pattern.findall(contents))
        if not found:
            return {}
        used = set(contents)
        free = (chr(code) for code in range(_PRIVATE_USE, _PRIVATE_USE_END) if chr(code) not in used)
        return {text: next(free) for text in self._control if text in found}

    def _neutral(self, content: str, marks: dict[str, str]) -> str:
        return self._control_pattern.sub(lambda match: marks[match.group()], content) if marks else content

    def _text(self, messages: Messages, marks: dict[str, str], generation_prompt: bool) -> str:
        # An episode's next turn begins with the conversation just rendered: its text is kept.
        key = (generation_prompt, tuple((m["role"], self._neutral(m["content"], marks)) for m in messages))
        if key not in self._texts:
            if len(self._texts) >= _TEXTS_KEPT:
                self._texts.clear()
            self._texts[key] = self._template([{"role": role, "content": content} for role, content in key[1]], generation_prompt)
        return self._texts[key]

    def _template(self, neutral: list[dict], generation_prompt: bool) -> str:
        return self.tokenizer.apply_chat_template(
            neutral, tokenize=False, add_generation_prompt=generation_prompt, **self._options
        )

    def _encode(self, text: str, marks: dict[str, str]) -> list[int]:
        """Ids of rendered text; the template brings every control token along, so the tokenizer adds none."""
        if not marks:
            return self.tokenizer.encode(text, add_special_tokens=False)
        original = {mark: control for control, mark in marks.items()}
        ids: list[int] = []
        for piece in re.split(f"([{''.join(original)}])", text):
            if piece in original:
                ids += self._plain(original[piece])
            elif piece:
                ids += self.tokenizer.encode(piece, add_special_tokens=False)
        return ids

    def _plain(self, text: str) -> list[int]:
        ids = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        if (self._control_ids - {self.tokenizer.unk_token_id}).isdisjoint(ids):
            return ids
        # A control token may also be an entry of the model's own vocabulary; spelt letter by letter it is not found.
        if len(text) == 1:
            raise UserError(f"the tokenizer of {self.name} cannot spell {text!r} without a control token")
        return [id for character in text for id in self._plain(character)]

    def _find_stop_ids(self, extra: Iterable[int]) -> tuple[int, ...]:
        """End of sequence, the token that the template puts behind an assistant's turn, and `extra`."""
        found = (self.tokenizer.eos_token_id, self._template_end(), *extra)
        ids = [id for id in found if id is not None]
        if not ids:
            raise UserError(
                f"the tokenizer of {self.name} has no token that ends a turn: set eos_token, or end the assistant's turn "
                "with a special token in the chat template"
            )
        return tuple(dict.fromkeys(ids))

    def _template_end(self) -> int | None:
        probe = "seedlab probes the template"
        messages = [{"role": r, "content": c} for r, c in (("user", "u"), ("assistant", probe), ("user", "v"))]
        following = self._text(messages, {}, False).partition(probe)[2]
        match = self._control_pattern.match(following.lstrip())
        return self._control[match.group()] if match else None


def _after_response(text: str, response: str) -> str | None:
    """What follows `response` at the start of `text`, or None; a template may have trimmed or padded the response."""
    if text.startswith(response):
        return text[len(response) :]
    text, response = text.lstrip(), response.strip()
    return text[len(response) :] if text.startswith(response) else None
