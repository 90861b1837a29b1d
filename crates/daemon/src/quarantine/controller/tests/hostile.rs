//! Clients that accept and reject as they like: nobody else is sent another byte for it.

use super::*;

/// What a hostile client does with a message.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Accept,
    Reject,
    Nothing,
}

/// Numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn documents(dice: &mut Dice) -> String {
    match dice.roll(4) {
        0 => filter(&format!("filter-{}", dice.roll(3))),
        1 => rule(u32::try_from(dice.roll(5)).unwrap() + 1),
        2 => other_filter(&format!("other-{}", dice.roll(3))),
        _ => [filter(&format!("both-{}", dice.roll(3))), rule(9)].join("---"),
    }
}

impl Proxy {
    /// Like [`Proxy::send`], answered at random.
    fn provoke(&mut self, dispatcher: &Dispatcher, dice: &mut Dice) {
        let answer = match dice.roll(5) {
            0 | 1 => Answer::Reject,
            2 | 3 => Answer::Accept,
            _ => Answer::Nothing,
        };
        let world = dispatcher.engine_of(self.connection.id).snapshot();
        let revision = dispatcher.engine().revision().number();
        let now: ResourceSet =
            provenance::resources(&world, &self.connection, types::CLUSTER).unwrap().into_iter().collect();
        // Messages that nobody sent are answered too.
        let is_new = now != self.last || dice.roll(4) == 0;
        if is_new {
            self.messages += 1;
            self.reply(dispatcher, revision, now, answer);
        }
        if !matches!(answer, Answer::Nothing) {
            dispatcher.connections().record(&self.connection, &SessionEvent::Settled { revision });
        }
    }

    fn reply(&mut self, dispatcher: &Dispatcher, revision: u64, now: ResourceSet, answer: Answer) {
        let type_url: Arc<str> = types::CLUSTER.into();
        let nonce: Arc<str> = self.messages.to_string().into();
        let sent = SessionEvent::Sent {
            type_url: Arc::clone(&type_url),
            nonce: nonce.clone(),
            version: now.digest(),
            revision,
            pushed: true,
            resources: now.len(),
            removed: 0,
            bytes: 0,
        };
        dispatcher.connections().record(&self.connection, &sent);
        self.last = now.clone();
        let event = match answer {
            Answer::Nothing => return,
            Answer::Accept => SessionEvent::Acked { type_url, nonce, accepted: now },
            Answer::Reject => SessionEvent::Nacked {
                type_url,
                nonce: nonce.to_string(),
                code: Code::Internal as i32,
                message: "outbound|80||cart.default.svc.cluster.local: no".to_owned(),
                accepted: ResourceSet::default(),
                refused: now,
            },
        };
        dispatcher.connections().record(&self.connection, &event);
    }
}

/// Two meshes with the same objects and honest proxies; the first has hostile ones too.
fn play(seed: u64) {
    let mut dice = Dice(seed);
    let (mut mesh, mut twin) = (Mesh::new(true), Mesh::new(true));
    let start = [SERVICE, &filter("good"), &rule(7)].join("---");
    for one in [&mut mesh, &mut twin] {
        one.write(&start);
        one.connect("honest", false);
        one.connect_as(crate::test_proxy("anonymous"), false);
    }
    let mut hostile: Vec<Proxy> = Vec::new();
    for number in 0..=dice.roll(4) {
        let domain = ["default.svc.cluster.local", "default.svc.elsewhere"][dice.roll(2) as usize];
        let proxy = crate::test_proxy_in(&format!("hostile-{number}"), domain, dice.roll(3) > 0);
        mesh.connect_as(proxy, true);
        hostile.extend(mesh.proxies.pop());
    }
    for step in 0..24 {
        if dice.roll(3) == 0 {
            let documents = documents(&mut dice);
            mesh.write(&documents);
            twin.write(&documents);
        }
        for one in &mut hostile {
            if dice.roll(3) > 0 {
                one.provoke(&mesh.dispatcher, &mut dice);
            }
        }
        mesh.clock += Duration::from_millis(dice.roll(12_000));
        mesh.controller.act(mesh.clock);
        // Honest proxies come and go. What one of them is sent first is compared like everything else.
        match dice.roll(4) {
            0 => {
                let domain = ["default.svc.cluster.local", "default.svc.elsewhere"][dice.roll(2) as usize];
                for one in [&mut mesh, &mut twin] {
                    one.connect_as(crate::test_proxy_in(&format!("late-{step}"), domain, true), false);
                }
            }
            1 if mesh.proxies.len() > 2 => {
                let leaving = dice.roll(mesh.proxies.len() as u64) as usize;
                for one in [&mut mesh, &mut twin] {
                    let gone = one.proxies.remove(leaving);
                    one.dispatcher.connections().disconnect(&gone.connection);
                }
            }
            2 if dice.roll(2) == 0 => {
                let again = dice.roll(hostile.len() as u64) as usize;
                let gone = hostile.remove(again);
                let proxy = gone.connection.proxy.clone();
                mesh.dispatcher.connections().disconnect(&gone.connection);
                mesh.connect_as(proxy, true);
                hostile.extend(mesh.proxies.pop());
            }
            _ => {}
        }
        mesh.send();
        twin.send();
        for (own, other) in mesh.proxies.iter().zip(&twin.proxies) {
            assert!(
                own.last == other.last,
                "seed {seed}, step {step}: an honest proxy is sent something else"
            );
            assert_eq!(own.messages, other.messages, "seed {seed}, step {step}: more was sent");
        }
        mesh.controller.act(mesh.clock);
    }
}

#[test]
fn no_interleaving_of_hostile_answers_changes_what_others_are_sent() {
    for seed in 0..40 {
        play(seed);
    }
}
