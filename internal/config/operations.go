package config

// Operation declares one operation. The beginning of its name says what it is:
// http.call. a request, webhook.send. a signed message, package.publish. a file
// put into a registry.
type Operation struct {
	Name       string `yaml:"name" validate:"required,max=64"` // as bundles list it: http.call.restart
	Connection string `yaml:"connection" validate:"required,token"`
	Summary    string `yaml:"summary" validate:"required,max=200"` // one line, for agents
	// Calls bounds those of one session, 0 = 20.
	Calls int `yaml:"calls,omitempty" validate:"gte=0,lte=1000"`

	// Arguments is the JSON Schema of what agents send, a closed object: of a
	// request's arguments, or of a message.
	Arguments map[string]any `yaml:"arguments,omitempty"`

	// Of a request. Path is absolute and has {argument} for whole segments; other
	// arguments stand in the body, or in the query of GET and DELETE. Answer lists
	// the members of a JSON answer that the agent is shown. A package's path has
	// {version}. A webhook's path is its connection's.
	Method string   `yaml:"method,omitempty" validate:"omitempty,oneof=GET POST PUT PATCH DELETE"`
	Path   string   `yaml:"path,omitempty" validate:"max=512"`
	Answer []string `yaml:"answer,omitempty" validate:"max=32,dive,required,max=64"`

	// Of a package: the files that a person approved.
	Approved []Approved `yaml:"approved,omitempty" validate:"unique=Version,max=256,dive"`
}

// Approved is one file by its digest, as the version that it may become.
type Approved struct {
	Version string `yaml:"version" validate:"required,max=64"`
	SHA256  string `yaml:"sha256" validate:"required,len=64,hexadecimal,lowercase"`
}
