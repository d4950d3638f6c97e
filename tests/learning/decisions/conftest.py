"""A reader of figures whose engine has made forty decisions."""

import pytest

from engine.clock import FakeClock
from engine.learning.decisions.insights import InsightsReader
from engine.model import CalibrationCheck, Phase, TrainingView
from engine.storage.database import Database


@pytest.fixture
def reader(database: Database, clock: FakeClock) -> InsightsReader:
    return InsightsReader(
        database,
        clock,
        read_phase=lambda: Phase(1, 40, "forty"),
        read_calibration=lambda: CalibrationCheck(40, is_calibrated=False, reason="forty"),
        read_threshold=lambda: 0.8,
        missing_for=lambda workspace: f"for {workspace or 'all'}",
        read_training=lambda: TrainingView(0, 50, "", None, (), "", enabled=False, automatic=False),
    )
