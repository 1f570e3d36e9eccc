package ui

import (
	"net/http"
	"slices"

	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

func (u *UI) bundles(*http.Request) (answer, error) {
	return answer{title: "Bundles", body: bundleList(u.o.View.Bundles())}, nil
}

func (u *UI) bundle(r *http.Request) (answer, error) {
	name := r.PathValue("name")
	all := u.o.View.Bundles()
	i := slices.IndexFunc(all, func(b view.Bundle) bool { return b.Name == name })
	if i < 0 {
		return answer{}, problem.New(problem.NotFound, "there is no bundle of that name", "Apply one with gatehouse bundle apply.")
	}
	history, err := u.o.View.History(name)
	if err != nil {
		return answer{}, err
	}
	var text []byte
	if all[i].Digest != "" {
		if text, err = u.o.Do.Bundle(r.Context(), all[i].Digest); err != nil {
			return answer{}, err
		}
	}
	recent, err := u.o.View.Sessions(view.SessionFilter{Bundle: name}, "", 10)
	if err != nil {
		return answer{}, err
	}
	return answer{title: "Bundle " + word(name), body: bundlePage(all[i], history, string(text), recent.Items)}, nil
}
