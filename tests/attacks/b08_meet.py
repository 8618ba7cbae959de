"""Two trajectories try to find each other; each of the two runs this at the same time."""

import os
import socket
import time

from prelude import D, done, processes, report, until

me = str(os.getpid()) + D["mark"]
name = "\0" + D["rendezvous"]
server = None
try:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.setblocking(False)
    server.bind(name)
except OSError:
    pass
places = [f"{folder}/{D['rendezvous']}-meet" for folder in ("/tmp", "/dev/shm", "/var/tmp")]
for place in places:
    try:
        with open(place, "a") as file:
            file.write(me + "\n")
    except OSError:
        pass
going = until(D["meet_s"])
while going() and not done:
    try:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        client.setblocking(False)
        client.sendto(me.encode(), name)
    except OSError:
        pass
    try:
        said = server.recv(100).decode() if server else me
        if said != me:
            done["abstract socket"] = said
    except OSError:
        pass
    for place in places:
        try:
            with open(place) as file:
                if any(line.strip() != me for line in file):
                    done[place] = "the other was here"
        except OSError:
            pass
    for pid in processes():
        try:
            with open(f"/proc/{pid}/comm") as file:
                if file.read().strip() == D["other"]:
                    done["saw its process"] = pid
                    os.kill(int(pid), 0)
                    done["could signal it"] = pid
        except OSError:
            pass
    time.sleep(0.02)
time.sleep(0.1)
report()
