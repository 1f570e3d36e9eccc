//go:build linux

package local_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
)

// TestOrdinaryWorkWorks: a boundary in which programs break is switched off.
func TestOrdinaryWorkWorks(t *testing.T) {
	cases := map[string]struct{ needs, script, want string }{
		"shell":                 {"/bin/bash", `bash -c 'set -o pipefail; seq 1000 | sort -R | sort -n | tail -n 1; mkfifo f; (echo x > f &); cat f; ulimit -c 0; echo $?'`, "1000\nx\n0\n"},
		"strace_of_a_child":     {"strace", `strace -f -e trace=getpid -o log sh -c 'exit 3'; echo $?`, "3\n"},
		"git":                   {"git", `git init -q r && cd r && git config user.email a@b && git config user.name a && echo 1 > f && git add f && git commit -qm one && git log --format=%s`, "one\n"},
		"c_compiler":            {"gcc", `printf '#include <stdio.h>\n#include <threads.h>\nint f(void*p){return 7;} int main(){thrd_t t;int r;thrd_create(&t,f,0);thrd_join(t,&r);printf("%%d\\n",r);}' > a.c && gcc -pthread a.c -o a && ./a`, "7\n"},
		"python_processes":      {"/usr/bin/python3", `/usr/bin/python3 -c 'import multiprocessing as m; print(sum(m.Pool(4).map(abs, range(-10, 0))))'`, "55\n"},
		"python_threads_sqlite": {"/usr/bin/python3", `/usr/bin/python3 -c 'import sqlite3, threading; t = threading.Thread(target=lambda: sqlite3.connect("/workspace/db").execute("create table t(x)")); t.start(); t.join(); print(sqlite3.connect("/workspace/db").execute("select count(*) from t").fetchone()[0])'`, "0\n"},
		"node_workers":          {"/usr/bin/node", `/usr/bin/node -e 'const {Worker} = require("worker_threads"); new Worker("require(\"worker_threads\").parentPort.postMessage(7)", {eval: true}).on("message", console.log)'`, "7\n"},
		"node_children":         {"/usr/bin/node", `/usr/bin/node -e 'console.log(require("child_process").execFileSync("echo", ["hi"]).toString().trim())'`, "hi\n"},
		"go":                    {"/usr/local/go/bin/go", `printf 'package main\nimport "os/exec"\nfunc main() { out, _ := exec.Command("echo", "built").Output(); print(string(out)) }' > m.go && GOFLAGS=-mod=mod GO111MODULE=off /usr/local/go/bin/go run m.go`, "built\n"},
		"server_on_loopback":    {"/usr/bin/python3", `/usr/bin/python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & for i in $(seq 100); do curl -sf -o /dev/null http://127.0.0.1:8000/ && echo served && break; sleep 0.1; done`, "served\n"},
		"locale_and_names":      {"/bin/sh", `id -un; hostname 2>/dev/null || cat /etc/hostname; getent passwd 1000 | cut -d: -f6`, "agent\ngatehouse\n/home/agent\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(c.needs); err != nil {
				t.Skipf("NOT TESTED on this machine: no %s", c.needs)
			}
			if testing.Short() && name == "go" {
				t.Skip("slow")
			}
			r := run(t, sandbox.Spec{Timeout: 3 * time.Minute}, nil, c.script)
			if !strings.HasSuffix(r.out, c.want) {
				t.Errorf("exit %d %s %s\n%s", r.Exit, r.Reason, r.Detail, r.out)
			}
		})
	}
}
