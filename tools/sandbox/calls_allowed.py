"""Which system calls code in a sandbox may make: every call of the tables is in exactly one group.

What is in no group, such as a call newer than the tables, does not exist for the code: programs
then do without it. Groups that depend on arguments or on the wall are turned into rules by
`seccomp`.
"""

ALWAYS = frozenset(
    # files, through what the wall lets be opened
    "read write open close stat fstat lstat newfstatat statx poll lseek pread64 pwrite64 readv "
    "writev preadv pwritev preadv2 pwritev2 access faccessat faccessat2 openat openat2 creat "
    "getdents getdents64 getcwd chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir link "
    "linkat unlink unlinkat symlink symlinkat readlink readlinkat mknod mknodat umask statfs "
    "fstatfs ftruncate fallocate fadvise64 readahead flock fsync fdatasync sync_file_range "
    "sendfile copy_file_range splice tee dup dup2 dup3 pipe pipe2 select pselect6 ppoll "
    "getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr close_range "
    # memory
    "mmap mprotect munmap brk mremap msync mincore madvise mlock munlock mlock2 munlockall "
    "pkey_mprotect pkey_alloc pkey_free membarrier mseal "
    # processes, threads, time
    "fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid getpgid getpgrp "
    "setpgid getsid setsid set_tid_address set_robust_list futex futex_waitv futex_wake futex_wait "
    "futex_requeue rseq restart_syscall sched_yield getcpu arch_prctl pidfd_open "
    "getrlimit setrlimit getrusage times sysinfo uname getpriority ioprio_get sched_getparam "
    "sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval "
    "sched_getaffinity sched_getattr "
    "getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid "
    "setresuid setresgid setfsuid setfsgid setgroups capget capset "
    "time gettimeofday clock_gettime clock_getres nanosleep clock_nanosleep getitimer setitimer "
    "alarm pause timer_create timer_settime timer_gettime timer_getoverrun timer_delete "
    "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend "
    "sigaltstack signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime eventfd "
    "eventfd2 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 getrandom "
    # sockets that exist already
    "recvfrom recvmsg recvmmsg shutdown getsockname getpeername getsockopt".split()
)

BY_ARGUMENT = frozenset(
    "ioctl fcntl prctl clone prlimit64 personality socket socketpair setsockopt".split()
)
"""Allowed for some of their arguments."""

MISSING = frozenset(["clone3"])
"""Said not to exist, so that programs take an older call whose arguments can be looked at."""

WITHOUT_EFFECT = frozenset(
    "setpriority ioprio_set sched_setparam sched_setscheduler sched_setattr sched_setaffinity "
    "sync syncfs".split()
)
"""Succeed and do nothing: a program that makes itself wait is not to look starved by others, and
none is to slow the machine."""

XATTRS = frozenset("setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr".split())
"""Not supported, as on many file systems: no limit counts their space."""

SIGNALS = frozenset("kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo".split())
"""First argument is the process."""

OWNER_ONLY = frozenset("chmod fchmod fchmodat fchmodat2".split())
TIMES = frozenset("utime utimes futimesat".split())
"""By path; `utimensat` can be by descriptor too."""

OF_PATHS = frozenset("truncate chown fchown lchown fchownat".split())
NETWORK = frozenset("connect accept accept4 bind listen sendmsg sendmmsg".split())
WATCHING = frozenset("inotify_init inotify_init1 inotify_add_watch inotify_rm_watch".split())
UNSCOPED = frozenset(["utimensat", "sendto", "pidfd_send_signal"])
"""Rules of their own beside the host."""

REFUSED = frozenset(
    # other processes
    "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp "
    "get_robust_list move_pages migrate_pages perf_event_open "
    # memory that no limit of a process counts
    "memfd_create memfd_secret shmget shmat shmctl shmdt semget semop semtimedop semctl msgget "
    "msgsnd msgrcv msgctl mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr "
    "mlockall remap_file_pages vmsplice "
    # namespaces and mounts
    "unshare setns mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount "
    "open_tree open_tree_attr mount_setattr statmount listmount "
    # wide or young parts of the kernel
    "bpf userfaultfd io_uring_setup io_uring_enter io_uring_register io_setup io_destroy io_submit "
    "io_cancel io_getevents io_pgetevents seccomp landlock_create_ruleset landlock_add_rule "
    "landlock_restrict_self add_key request_key keyctl fanotify_init fanotify_mark "
    "name_to_handle_at open_by_handle_at modify_ldt set_thread_area get_thread_area "
    "map_shadow_stack cachestat lookup_dcookie lsm_get_self_attr lsm_set_self_attr "
    "lsm_list_modules setxattrat getxattrat listxattrat removexattrat file_getattr file_setattr "
    "mbind set_mempolicy get_mempolicy set_mempolicy_home_node "
    # the machine
    "syslog reboot kexec_load kexec_file_load init_module finit_module delete_module create_module "
    "query_module get_kernel_syms swapon swapoff acct quotactl quotactl_fd settimeofday "
    "clock_settime clock_adjtime adjtimex sethostname setdomainname iopl ioperm vhangup uselib "
    "ustat sysfs _sysctl nfsservctl getpmsg putpmsg afs_syscall tuxcall security vserver "
    "epoll_ctl_old epoll_wait_old".split()
)
"""Always refused."""
