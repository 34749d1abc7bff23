import sys
from pathlib import Path

# The maker of fake runs is shared by the tests of two rooms.
sys.path.insert(0, str(Path(__file__).parent.parent / "analysis"))
