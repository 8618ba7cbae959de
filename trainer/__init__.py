if __name__ != "agentgym.trainer":
    raise ImportError("import agentgym.trainer, not trainer: this folder is a part of agentgym")
