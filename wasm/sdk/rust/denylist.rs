//! The denylist enforcer in Rust: denies the hosts of params.hosts and what
//! lies below them, abstains from the rest.
//!
//! rustc --target wasm32-unknown-unknown --crate-type cdylib -C opt-level=3 -C panic=abort denylist.rs
#![no_std]

#[macro_use]
mod gatehouse;

use gatehouse::{Action, Enforcer, Json};

struct Denylist {
    hosts: Option<Json<'static>>,
}

impl Enforcer for Denylist {
    const DESCRIPTION: &'static str = r#"{"actions":["dns.query","git.fetch","git.push","http.request","model.call","net.connect","operation.call","session.spawn","telemetry.emit"],"name":"denylist","rules":["denylist"],"version":"1"}"#;
    const NEW: Self = Denylist { hosts: None };

    fn configure(&mut self, _bundle: Json<'static>, params: Json<'static>) -> bool {
        self.hosts = params.member("hosts");
        self.hosts.map_or(false, |hosts| hosts.items().next().is_some())
    }

    fn decide(&self, action: Action) -> &'static str {
        if let (Some(hosts), Some(name)) = (self.hosts, action.host()) {
            if hosts.items().any(|host| below(name, host)) {
                return deny!("denylist", "host_denied");
            }
        }
        abstain!("denylist", "not_listed")
    }
}

/// Whether name is host or lies below it.
fn below(name: Json, host: Json) -> bool {
    let (n, h) = (name.text().count(), host.text().count());
    if n < h {
        return false;
    }
    let skip = n - h;
    name.text().skip(skip).eq(host.text()) && (skip == 0 || name.text().nth(skip - 1) == Some(b'.'))
}

enforcer!(Denylist);
