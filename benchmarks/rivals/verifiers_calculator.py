"""The task for verifiers 0.4: a taskset whose tool server is shared by all tasks."""

import verifiers.v1 as vf
from arithmetic import answer, question
from verifiers_tools import CalculatorToolset


class Data(vf.TaskData):
    """One question."""

    index: int


class CalculatorTask(vf.Task[Data]):
    """Scored by its last message."""

    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float((trace.last_reply or "").strip() == answer(self.data.index))


class Config(vf.TasksetConfig):
    """How many, and where the tool runs."""

    num_tasks: int = 8
    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()


class CalculatorTaskset(vf.Taskset[CalculatorTask, Config]):
    """As many as asked for."""

    @classmethod
    def toolsets(cls, config: Config) -> list[vf.Toolset]:
        return [CalculatorToolset(config.tools)]

    def load(self) -> list[CalculatorTask]:
        return [
            CalculatorTask(Data(prompt=question(index), index=index), self.config.task)
            for index in range(self.config.num_tasks)
        ]


__all__ = ["CalculatorTaskset"]
