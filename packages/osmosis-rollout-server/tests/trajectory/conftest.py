"""Lets the trajectory tests import their strategies and helpers, `chats.py` beside this."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
