from seedlab.cli.checks import Check
from seedlab.cli.doctor import summary


def test_the_last_line_says_what_is_to_be_mended():
    good, absent, wrong = Check("a", "ok", ""), Check("b", "absent", ""), Check("c", "wrong", "", "mend it")
    assert summary([good, good]) == "nothing to mend: 2 of 2 ok"
    assert summary([good, absent]) == "nothing to mend: 1 of 2 ok; 1 optional parts absent (b)"
    assert summary([good, absent, wrong]).startswith("1 to mend (c): 1 of 3 ok")
