if __name__ != "agentgym.tools":
    raise ImportError("import agentgym.tools, not tools: this folder is a part of agentgym")
