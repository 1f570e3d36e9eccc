package agent

// Asked is asked, for the fuzzer.
var Asked = asked
