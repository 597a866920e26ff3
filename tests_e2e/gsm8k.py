"""The demo's project and its real data: 200 problems, and four models' solutions of them."""

from pathlib import Path

DEMO = Path(__file__).parents[1] / "tools" / "demo"
DATASET = DEMO / "data" / "gsm8k_test_200.jsonl"
SOLUTIONS = DEMO / "data" / "gsm8k_test_200_solutions.jsonl"
# Known from the published verdicts on these solutions.
CORRECT = {
    "6b_finetuning": 45,
    "175b_finetuning": 65,
    "6b_verification": 75,
    "175b_verification": 110,
}
