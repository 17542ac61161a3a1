//! Commands about the connection: who the client is, what it speaks, and where its commands work.

use crate::resp::acl::DEFAULT;
use crate::resp::command::ConnectionCommand;
use crate::resp::encode::Protocol;
use crate::resp::session::Session;
use crate::resp::{RespContext, databases, info};
use bytes::Bytes;

const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const HELLO_NOAUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, \
    otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and \
    select the RESP protocol version at the same time";

impl Session {
    pub(crate) fn about_connection(&mut self, context: &mut RespContext, asked: ConnectionCommand) {
        use ConnectionCommand as C;
        match asked {
            // A subscriber that speaks RESP2 is answered as by a message.
            C::Ping(text)
                if self.replies.protocol == Protocol::Resp2
                    && self.subscriptions.is_subscriber() =>
            {
                self.replies.answer(|e| {
                    e.array(2);
                    e.bulk(b"pong");
                    e.bulk(text.as_deref().unwrap_or_default());
                });
            }
            C::Ping(None) => self.replies.answer(|e| e.simple("PONG")),
            C::Ping(Some(text)) | C::Echo(text) => self.replies.answer(|e| e.bulk(&text)),
            C::Hello {
                protocol,
                auth,
                name,
            } => self.hello(context, protocol, auth, name),
            C::Auth { user, password } => {
                let open = context.front.users.borrow().default().user().nopass;
                if user.is_none() && open {
                    let text = "ERR AUTH <password> called without any password configured for the \
                                default user. Are you sure your configuration is correct?";
                    return self.replies.answer(|e| e.error(text));
                }
                let user = user.as_deref().unwrap_or(DEFAULT);
                if self.authenticate(context, user, &password, b"AUTH") {
                    self.replies.answer(|e| e.simple("OK"));
                } else {
                    self.replies.answer(|e| e.error(WRONGPASS));
                }
            }
            C::Accept => self.replies.answer(|e| e.simple("OK")),
            C::Select(index) if self.client.cluster_port && index != 0 => self
                .replies
                .answer(|e| e.error("ERR SELECT is not allowed in cluster mode")),
            C::Select(index) => match databases::map(index) {
                Some(map) => {
                    self.client.map = map;
                    self.replies.answer(|e| e.simple("OK"));
                }
                None => self
                    .replies
                    .answer(|e| e.error("ERR DB index is out of range")),
            },
            C::Quit => {
                self.replies.answer(|e| e.simple("OK"));
                self.closing = true;
            }
            C::Reset => self.reset(context),
            C::Multi if self.queue().is_some() => {
                self.replies
                    .answer(|e| e.error("ERR MULTI calls can not be nested"));
            }
            C::Multi => {
                let (map, user) = (self.client.map, self.client.user.clone());
                self.transacting.get_or_insert_default().begin(map, user);
                self.replies.answer(|e| e.simple("OK"));
            }
            C::Discard if self.queue().is_some() => {
                self.end_transaction();
                self.replies.answer(|e| e.simple("OK"));
            }
            C::Discard => self
                .replies
                .answer(|e| e.error("ERR DISCARD without MULTI")),
            C::Unwatch => {
                if let Some(transacting) = &mut self.transacting {
                    transacting.unwatch();
                }
                self.replies.answer(|e| e.simple("OK"));
            }
            // They ask the shard (`Session::run`).
            C::Exec | C::Watch => {}
        }
    }

    fn reset(&mut self, context: &mut RespContext) {
        self.client
            .reset(&context.front.users.borrow(), context.now());
        (self.replies.protocol, self.replies.silent) = (Protocol::Resp2, false);
        self.end_transaction();
        self.subscriptions.leave(context, self.client.id);
        self.replies.answer(|e| e.simple("RESET"));
    }

    fn hello(
        &mut self,
        context: &mut RespContext,
        protocol: Option<i64>,
        auth: Option<(Bytes, Bytes)>,
        name: Option<Bytes>,
    ) {
        if let Some((user, password)) = auth
            && !self.authenticate(context, &user, &password, b"HELLO")
        {
            return self.replies.answer(|e| e.error(WRONGPASS));
        }
        if !self.client.authenticated {
            return self.replies.answer(|e| e.error(HELLO_NOAUTH));
        }
        if let Some(Err(text)) = name.map(|name| self.client.set_name(&name)) {
            return self.replies.answer(|e| e.error(text));
        }
        match protocol {
            Some(3) => self.replies.protocol = Protocol::Resp3,
            Some(_) => self.replies.protocol = Protocol::Resp2,
            None => {}
        }
        let version = if self.replies.protocol == Protocol::Resp3 {
            3
        } else {
            2
        };
        let id = i64::try_from(self.client.id).unwrap_or(i64::MAX);
        let mode: &[u8] = if self.client.cluster_port {
            b"cluster"
        } else {
            b"standalone"
        };
        self.replies.answer(|e| {
            e.map(7);
            e.bulk(b"server");
            e.bulk(b"redis");
            e.bulk(b"version");
            e.bulk(info::REDIS_VERSION.as_bytes());
            e.bulk(b"proto");
            e.integer(version);
            e.bulk(b"id");
            e.integer(id);
            e.bulk(b"mode");
            e.bulk(mode);
            e.bulk(b"role");
            e.bulk(b"master");
            e.bulk(b"modules");
            e.array(0);
        });
    }
}
