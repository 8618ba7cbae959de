if __name__ != "agentgym.envs":
    raise ImportError("import agentgym.envs, not envs: this folder is a part of agentgym")
