// Package openinspect starts sessions of an Open-Inspect deployment by the
// webhook of one of its automations. It sends what the bundle delivers, once,
// and reads the count that comes back.
//
// Open-Inspect runs the agent in a sandbox of its own choice, with its own
// credentials and exits: Gatehouse mediates nothing there and sees nothing of
// it. So this provider declares no capability, its probe proves none, and only a
// bundle with credentials: compatibility can name it; hard mode never can. It
// must never report more than what was handed over.
package openinspect
