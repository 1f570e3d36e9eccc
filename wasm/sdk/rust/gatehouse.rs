//! The Rust SDK for enforcers of ABI v1: no dependency, no allocation. An
//! enforcer reads one action and returns a verdict; it may deny or abstain, and
//! reaches nothing else. What `configure` stores is there in every call, what
//! `decide` stores is gone with it.
#![allow(dead_code)]

/// A JSON value, as a view of the message. Messages are canonical: no white
/// space, no duplicate keys.
#[derive(Clone, Copy)]
pub struct Json<'a>(&'a [u8]);

impl<'a> Json<'a> {
    /// The value's bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The member of an object with this key.
    pub fn member(self, key: &str) -> Option<Json<'a>> {
        self.members().find(|(k, _)| k.0 == key.as_bytes()).map(|(_, v)| v)
    }

    /// The members of an object; keys are without their quotes.
    pub fn members(self) -> impl Iterator<Item = (Json<'a>, Json<'a>)> {
        let mut rest = self.0.strip_prefix(b"{").unwrap_or(b"");
        core::iter::from_fn(move || {
            let (key, after) = take_string(rest)?;
            let (value, after) = take_value(after.strip_prefix(b":")?)?;
            rest = after.strip_prefix(b",").unwrap_or(b"");
            Some((Json(key), Json(value)))
        })
    }

    /// The elements of an array.
    pub fn items(self) -> impl Iterator<Item = Json<'a>> {
        let mut rest = self.0.strip_prefix(b"[").unwrap_or(b"");
        core::iter::from_fn(move || {
            let (value, after) = take_value(rest)?;
            rest = after.strip_prefix(b",").unwrap_or(b"");
            Some(Json(value))
        })
    }

    /// The characters of a string value, one byte at a time, unescaped. A value
    /// that is no string has none.
    pub fn text(self) -> impl Iterator<Item = u8> + Clone + 'a {
        let inner = match take_string(self.0) {
            Some((inner, [])) => inner,
            _ => b"",
        };
        let mut escaped = false;
        // Quote and backslash are the only escapes of canonical messages.
        inner.iter().copied().filter(move |&b| {
            escaped = b == b'\\' && !escaped;
            !escaped
        })
    }

    /// Whether the value is a string that reads s.
    pub fn is(self, s: &str) -> bool {
        self.text().eq(s.bytes())
    }

    /// An integer value.
    pub fn integer(self) -> Option<i64> {
        core::str::from_utf8(self.0).ok()?.parse().ok()
    }
}

fn take_string(b: &[u8]) -> Option<(&[u8], &[u8])> {
    let b = b.strip_prefix(b"\"")?;
    let mut i = 0;
    loop {
        match *b.get(i)? {
            b'"' => return Some((&b[..i], &b[i + 1..])),
            b'\\' => i += 2,
            _ => i += 1,
        }
    }
}

fn take_value(b: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut i, mut depth) = (0, 0);
    loop {
        match *b.get(i)? {
            b'"' => i = b.len() - take_string(&b[i..])?.1.len(),
            b'{' | b'[' => {
                depth += 1;
                i += 1;
                continue;
            }
            b'}' | b']' | b',' if depth == 0 => {
                return if i == 0 { None } else { Some((&b[..i], &b[i..])) };
            }
            b'}' | b']' => {
                depth -= 1;
                i += 1;
            }
            _ => {
                i += 1;
                continue;
            }
        }
        if depth == 0 {
            return Some((&b[..i], &b[i..]));
        }
    }
}

/// What a session tries.
#[derive(Clone, Copy)]
pub struct Action<'a>(pub Json<'a>);

impl<'a> Action<'a> {
    /// The body: the member named like the kind, with "_" for ".".
    pub fn body(self, name: &str) -> Option<Json<'a>> {
        self.0.member(name)
    }

    /// The name or address the action concerns.
    pub fn host(self) -> Option<Json<'a>> {
        if let Some(query) = self.body("dns_query") {
            return query.member("name");
        }
        ["http_request", "net_connect", "git_fetch", "git_push", "model_call", "telemetry_emit"]
            .into_iter()
            .find_map(|name| self.body(name))?
            .member("to")?
            .member("host")
    }
}

/// An answer as JSON. A rule matches `[A-Za-z0-9._:/@\[\]-]{1,128}`, a reason
/// `[a-z0-9._:-]{0,256}`; the host takes anything else for a fault.
#[macro_export]
macro_rules! deny {
    ($rule:literal, $reason:literal) => {
        concat!(r#"{"reason":""#, $reason, r#"","rule":""#, $rule, r#"","verdict":"deny"}"#)
    };
}

/// The answer that leaves the action to the other enforcers.
#[macro_export]
macro_rules! abstain {
    ($rule:literal, $reason:literal) => {
        concat!(r#"{"reason":""#, $reason, r#"","rule":""#, $rule, r#"","verdict":"abstain"}"#)
    };
}

/// What a module implements and hands to `enforcer!`.
pub trait Enforcer {
    /// What gatehouse_describe answers, for example
    /// `{"actions":["http.request"],"name":"x","version":"1"}`.
    const DESCRIPTION: &'static str;
    /// The enforcer before it is configured.
    const NEW: Self;
    /// Takes the compiled policy and the operator's params; false refuses them.
    fn configure(&mut self, bundle: Json<'static>, params: Json<'static>) -> bool;
    /// Judges one action: `deny!` or `abstain!`.
    fn decide(&self, action: Action) -> &'static str;
}

/// The largest message of either kind.
pub const INPUT: usize = 1 << 16;

/// Statuses of gatehouse_configure.
pub fn configure<E: Enforcer>(e: &mut E, message: &'static [u8]) -> i32 {
    let message = Json(message);
    match message.member("abi").and_then(Json::integer) {
        Some(1) => {}
        Some(_) => return 2,
        None => return 1,
    }
    match (message.member("bundle"), message.member("params")) {
        (Some(bundle), Some(params)) if e.configure(bundle, params) => 0,
        _ => 1,
    }
}

/// The packed answer to a decide message, 0 when it cannot be read.
pub fn decide<E: Enforcer>(e: &E, message: &[u8]) -> i64 {
    match Json(message).member("action") {
        Some(action) => packed(e.decide(Action(action))),
        None => 0,
    }
}

/// Pointer in the high half, length in the low half.
pub fn packed(s: &'static str) -> i64 {
    (s.as_ptr() as usize as i64) << 32 | s.len() as i64
}

/// Exports the ABI for an enforcer. The configure message keeps a buffer of its
/// own, so that the enforcer may hold views of it.
#[macro_export]
macro_rules! enforcer {
    ($t:ty) => {
        static mut INPUT: [u8; $crate::gatehouse::INPUT] = [0; $crate::gatehouse::INPUT];
        static mut CONFIGURED: [u8; $crate::gatehouse::INPUT] = [0; $crate::gatehouse::INPUT];
        static mut ENFORCER: $t = <$t as $crate::gatehouse::Enforcer>::NEW;

        #[no_mangle]
        extern "C" fn gatehouse_abi_v1() -> i32 {
            0
        }

        #[no_mangle]
        extern "C" fn gatehouse_alloc(n: usize) -> *mut u8 {
            if n > $crate::gatehouse::INPUT {
                return core::ptr::null_mut();
            }
            unsafe { core::ptr::addr_of_mut!(INPUT) as *mut u8 }
        }

        #[no_mangle]
        unsafe extern "C" fn gatehouse_configure(p: *const u8, n: usize) -> i32 {
            let kept = core::ptr::addr_of_mut!(CONFIGURED) as *mut u8;
            core::ptr::copy_nonoverlapping(p, kept, n);
            $crate::gatehouse::configure(&mut *core::ptr::addr_of_mut!(ENFORCER), core::slice::from_raw_parts(kept, n))
        }

        #[no_mangle]
        unsafe extern "C" fn gatehouse_decide(p: *const u8, n: usize) -> i64 {
            $crate::gatehouse::decide(&*core::ptr::addr_of!(ENFORCER), core::slice::from_raw_parts(p, n))
        }

        #[no_mangle]
        extern "C" fn gatehouse_describe() -> i64 {
            $crate::gatehouse::packed(<$t as $crate::gatehouse::Enforcer>::DESCRIPTION)
        }

        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo) -> ! {
            core::arch::wasm32::unreachable()
        }
    };
}
