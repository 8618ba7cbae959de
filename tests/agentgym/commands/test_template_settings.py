"""What is rendered is part of a run's config."""

from datetime import date

import yaml

from agentgym.commands.train_config import TrainConfig
from agentgym.config import to_yaml


def test_a_run_records_the_date_that_its_templates_are_told():
    """A resumed run renders the prompts of the first day."""
    run = TrainConfig().resolved()
    resumed = TrainConfig.model_validate(yaml.safe_load(to_yaml(run)))

    assert run.template_date == date.today()
    assert resumed.resolved().template_date == run.template_date


def test_a_given_date_is_kept():
    """`--template-date` is the date of another run."""
    run = TrainConfig.model_validate({"template_date": "2024-07-26"})

    assert run.resolved().template_date == date(2024, 7, 26)


def test_templates_that_rewrite_history_train_out_of_the_box():
    """Thinking models are what people train."""
    assert TrainConfig().on_history_rewrite == "fork"
