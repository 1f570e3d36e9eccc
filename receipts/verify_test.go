package receipts_test

import (
	"testing"
	"time"

	"gatehouse/receipts"
)

func TestVerify(t *testing.T) { runTamper(t, verifyCases(t)) }

// verifyCases: files as they were written, read in different ways.
func verifyCases(t *testing.T) map[string]tampering {
	t.Helper()
	w, end := story(t)
	fresh := w.options()
	fresh.Checkpoint = end.note
	stale := fresh
	stale.Now = w.now.Add(3 * time.Hour)
	future := fresh
	future.Now = w.now.Add(-time.Hour)
	noRoot, wrongRoot := w.options(), w.options()
	noRoot.Root = ""
	wrongRoot.Root = receipts.Fingerprint("gatehouse.example/root", public(key("other")))
	closed := cut{sessions: []string{sessionA}, end: &end, bundles: [][]byte{bundleText}, events: true}
	open := cut{sessions: []string{sessionC}, end: &end}

	return map[string]tampering{
		"closed_session":                           {w.export(closed), w.options(), 0, receipts.ClassComplete},
		"closed session alone":                     {w.export(cut{sessions: []string{sessionA}}), w.options(), 0, receipts.ClassComplete},
		"refused session":                          {w.export(cut{sessions: []string{sessionB}}), w.options(), 0, receipts.ClassComplete},
		"two closed sessions":                      {w.export(cut{sessions: []string{sessionA, sessionB}}), w.options(), 0, receipts.ClassComplete},
		"no root":                                  {w.export(closed), noRoot, 4, receipts.ClassKey},
		"wrong root":                               {w.export(closed), wrongRoot, 4, receipts.ClassKey},
		"open session, enclosed checkpoint":        {w.export(open), w.options(), 3, receipts.ClassEndAsOf},
		"open session, no checkpoint":              {w.export(cut{sessions: []string{sessionC}}), w.options(), 3, receipts.ClassEndUnproven},
		"open session, fresh checkpoint":           {w.export(open), fresh, 0, receipts.ClassComplete},
		"open session, stale checkpoint":           {w.export(open), stale, 3, receipts.ClassEndAsOf},
		"open session, checkpoint of tomorrow":     {w.export(open), future, 3, receipts.ClassTime},
		"open and closed session":                  {w.export(cut{sessions: []string{sessionA, sessionC}, end: &end}), w.options(), 3, receipts.ClassEndAsOf},
		"only the closed one asked for":            {w.export(cut{sessions: []string{sessionA, sessionC}, end: &end}), withSession(w.options(), sessionA), 0, receipts.ClassComplete},
		"a session that is not there":              {w.export(closed), withSession(w.options(), sessionC), 3, receipts.ClassSessionMissing},
		"whole log":                                {w.export(cut{end: &end}), w.options(), 3, receipts.ClassEndAsOf},
		"one open session of the whole log, fresh": {w.export(cut{end: &end}), withSession(fresh, sessionC), 0, receipts.ClassComplete},
		"one open session of the whole log":        {w.export(cut{end: &end}), withSession(w.options(), sessionC), 3, receipts.ClassEndAsOf},
		"one closed session of the whole log":      {w.export(cut{end: &end}), withSession(w.options(), sessionA), 0, receipts.ClassComplete},
		"whole log, fresh":                         {w.export(cut{end: &end}), fresh, 0, receipts.ClassComplete},
		"whole log without checkpoint, fresh":      {w.export(cut{}), fresh, 0, receipts.ClassComplete},
		"whole log without checkpoint":             {w.export(cut{}), w.options(), 3, receipts.ClassEndUnproven},
		"later part of the log":                    {w.export(cut{first: 1, end: &end}), w.options(), 3, receipts.ClassEndUnproven},
		"control chain":                            {w.export(cut{sessions: []string{receipts.ControlSession}, end: &end}), w.options(), 3, receipts.ClassEndAsOf},
		"control chain, fresh":                     {w.export(cut{sessions: []string{receipts.ControlSession}, end: &end}), fresh, 0, receipts.ClassComplete},
		"empty file":                               {nil, w.options(), 3, receipts.ClassEmpty},
		"no receipts":                              {w.export(cut{sessions: []string{"01JCZ000000000000000000009"}}), w.options(), 3, receipts.ClassEmpty},
		"not an export":                            {[]byte("#!/bin/sh\nexit 0\n"), w.options(), 2, receipts.ClassUnreadable},
		"a receipt":                                {w.groups[0].leaves[0].data, w.options(), 2, receipts.ClassUnreadable},
		"newer export":                             {[]byte("gatehouse-export/2 " + origin + "\n"), w.options(), 6, receipts.ClassUnsupported},
	}
}

func withSession(o receipts.Options, id string) receipts.Options {
	o.Session = id
	return o
}
