//! An enforcer in Rust that denies requests no rule of params.rules lists, and
//! abstains from the rest. `make bench` sets it beside the built-in one. Rules are
//! those of a compiled policy, at most 64; what they need is looked up once, when
//! they are taken.
//!
//! rustc --target wasm32-unknown-unknown --crate-type cdylib -C opt-level=3 -C panic=abort -C link-arg=-zstack-size=16384 allowlist.rs
#![no_std]

#[macro_use]
mod gatehouse;

use gatehouse::{Action, Enforcer, Json};

const MOST: usize = 64;

#[derive(Clone, Copy)]
struct Rule {
    host: &'static [u8], // with its quotes; without `"*.` for a wildcard
    wildcard: bool,
    methods: Json<'static>,
    paths: Json<'static>,
    ports: Json<'static>,
    schemes: Json<'static>,
}

struct Allowlist {
    rules: [Option<Rule>; MOST],
}

impl Enforcer for Allowlist {
    const DESCRIPTION: &'static str = r#"{"actions":["http.request"],"name":"allowlist","rules":["allowlist"],"version":"1"}"#;
    const NEW: Self = Allowlist { rules: [None; MOST] };

    fn configure(&mut self, _bundle: Json<'static>, params: Json<'static>) -> bool {
        let rules = match params.member("rules") {
            Some(rules) => rules,
            None => return false,
        };
        for (i, rule) in rules.items().enumerate() {
            if i == MOST {
                return false;
            }
            self.rules[i] = parsed(rule);
            if self.rules[i].is_none() {
                return false;
            }
        }
        true
    }

    fn decide(&self, action: Action) -> &'static str {
        match action.body("http_request").and_then(|request| self.listed(request)) {
            Some(true) => abstain!("allowlist", "listed"),
            _ => deny!("allowlist", "not_listed"),
        }
    }
}

impl Allowlist {
    fn listed(&self, request: Json) -> Option<bool> {
        let (method, path, to) = (request.member("method")?, request.member("path")?, request.member("to")?);
        let (host, port, scheme) = (to.member("host")?, to.member("port")?, to.member("scheme")?);
        Some(self.rules.iter().flatten().any(|rule| {
            rule.names(host.bytes())
                && has(rule.ports, port)
                && has(rule.schemes, scheme)
                && has(rule.methods, method)
                && rule.paths.items().any(|pattern| covers(pattern.bytes(), path.bytes()))
        }))
    }
}

impl Rule {
    /// Whether the rule's host is name: values of canonical messages have one
    /// spelling, so that bytes are compared, quotes included.
    fn names(&self, name: &[u8]) -> bool {
        if !self.wildcard {
            return name == self.host;
        }
        match name.strip_suffix(self.host) {
            // One label: at least one byte behind the quote, a dot at its end, none before.
            Some(front) => front.len() > 2 && front[front.len() - 1] == b'.' && !front[..front.len() - 1].contains(&b'.'),
            None => false,
        }
    }
}

fn parsed(rule: Json<'static>) -> Option<Rule> {
    let host = rule.member("host")?.bytes();
    let (wildcard, host) = match host.strip_prefix(b"\"*.") {
        Some(rest) => (true, rest),
        None => (false, host),
    };
    Some(Rule {
        host,
        wildcard,
        methods: rule.member("methods")?,
        paths: rule.member("paths")?,
        ports: rule.member("ports")?,
        schemes: rule.member("schemes")?,
    })
}

fn has(list: Json, value: Json) -> bool {
    list.items().any(|item| item.bytes() == value.bytes())
}

/// "/v1/**" is what begins with "/v1/".
fn covers(pattern: &[u8], path: &[u8]) -> bool {
    match pattern.strip_suffix(b"**\"") {
        Some(front) => path.starts_with(front),
        None => path == pattern,
    }
}

enforcer!(Allowlist);
