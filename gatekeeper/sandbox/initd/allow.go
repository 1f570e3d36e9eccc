//go:build linux

package initd

// allowed are the calls that pass whatever their arguments. What is missing is
// refused; the notable absences and why are listed in docs/sandbox.md. Names
// that an architecture does not have are skipped.
var allowed = []string{
	// Files and folders.
	"access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup", "dup2", "dup3",
	"faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown",
	"fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs",
	"fsync", "ftruncate", "futimesat", "getcwd", "getdents", "getdents64", "getxattr", "inotify_add_watch",
	"inotify_init", "inotify_init1", "inotify_rm_watch", "lchown", "lgetxattr", "link", "linkat", "listxattr", "llistxattr",
	"lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir", "mkdirat", "mknod", "mknodat", "name_to_handle_at", "newfstatat", "open",
	"openat", "openat2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink",
	"readlinkat", "readv", "removexattr", "rename", "renameat", "renameat2", "rmdir", "sendfile", "setxattr", "splice",
	"stat", "statfs", "statx", "symlink", "symlinkat", "sync", "sync_file_range", "syncfs", "tee", "truncate", "umask",
	"unlink", "unlinkat", "utime", "utimensat", "utimes", "vmsplice", "write", "writev",
	// Asynchronous I/O of the old kind, which databases use.
	"io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup", "io_submit",
	// Landlock and further filters only ever take rights away.
	"landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "seccomp",
	// Waiting.
	"epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait", "epoll_pwait2", "epoll_wait",
	"epoll_wait_old", "eventfd", "eventfd2", "pause", "pipe", "pipe2", "poll", "ppoll", "pselect6", "select", "signalfd",
	"signalfd4", "timerfd_create", "timerfd_gettime", "timerfd_settime",
	// Memory.
	"brk", "cachestat", "get_mempolicy", "madvise", "map_shadow_stack", "membarrier", "memfd_create", "memfd_secret", "mincore",
	"mlock", "mlock2", "mlockall", "mmap", "mprotect", "mremap", "mseal", "msync", "munlock", "munlockall", "munmap",
	"pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages",
	// Processes and threads.
	"arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "futex", "futex_requeue",
	"futex_wait", "futex_waitv", "futex_wake", "get_robust_list", "get_thread_area", "getcpu", "getegid", "geteuid", "getgid",
	"getgroups", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getresgid", "getresuid", "getrlimit", "getrusage",
	"getsid", "gettid", "getuid", "ioprio_get", "prctl", "restart_syscall", "rseq", "sched_get_priority_max",
	"sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
	"sched_rr_get_interval", "sched_yield", "set_robust_list", "set_thread_area", "set_tid_address", "setfsgid", "setfsuid",
	"setgid", "setgroups", "setpgid", "setregid", "setresgid", "setresuid", "setreuid", "setsid", "setuid", "vfork", "wait4",
	"waitid",
	// Signals.
	"alarm", "getitimer", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigreturn", "rt_sigsuspend",
	"rt_sigtimedwait", "setitimer", "sigaltstack",
	// Sockets that exist; which may be made, sockets decides.
	"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom", "recvmmsg",
	"recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown",
	// System V and POSIX IPC, in the sandbox's own namespace.
	"mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd",
	"semctl", "semget", "semop", "semtimedop", "shmat", "shmctl", "shmdt", "shmget",
	// Time, read only.
	"clock_getres", "clock_gettime", "clock_nanosleep", "gettimeofday", "nanosleep", "time", "timer_create", "timer_delete",
	"timer_getoverrun", "timer_gettime", "timer_settime", "times",
	// The rest.
	"getrandom", "sysinfo", "uname",
}
