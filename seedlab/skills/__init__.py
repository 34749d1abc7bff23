"""Hindsight skills: what the analyzer reads, who writes, what counts as usable, and which one a teacher sees."""

from seedlab.skills.analyzers import Analyzer, OwnAnalyzer, RawSkill, ScriptedAnalyzer, SkillBatch, write_skills
from seedlab.skills.library import SkillLibrary
from seedlab.skills.prompts import AnalyzerPrompt, analyzer_messages, analyzer_prompt, completion_text, transcript
from seedlab.skills.sources import SOURCES, assign_skills
from seedlab.skills.validate import REASONS, copied_fraction, count_reasons, validate

# ExternalAnalyzer is in seedlab.skills.openai, which needs httpx.
__all__ = [
    "Analyzer", "AnalyzerPrompt", "OwnAnalyzer", "REASONS", "RawSkill", "SOURCES", "ScriptedAnalyzer", "SkillBatch",
    "SkillLibrary", "analyzer_messages", "analyzer_prompt", "assign_skills", "completion_text", "copied_fraction",
    "count_reasons", "transcript", "validate", "write_skills",
]
