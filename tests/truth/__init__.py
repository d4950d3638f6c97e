"""Results that do not lie: what could not run is neither a finding, nor a failure, nor a success (SPEC 2.12)."""
