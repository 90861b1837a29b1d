//! Points at which a test has a running task panic, to see what follows.
//!
//! Every task and part of a task that is supervised has one, by its name. They exist with the feature `fail-points` alone, which
//! no program turns on: in a released process there is nothing that could be asked to panic.

#[cfg(feature = "fail-points")]
pub use self::points::{panic_in, running};

/// Work with a fail point of this name.
#[cfg(not(feature = "fail-points"))]
pub(super) fn at<Work>(_name: &str, work: Work) -> Work {
    work
}

#[cfg(feature = "fail-points")]
pub(super) use self::points::at;

#[cfg(feature = "fail-points")]
mod points {
    use std::future::{Future, poll_fn};
    use std::sync::{Arc, Weak};
    use std::task::{Context, Waker};

    use parking_lot::Mutex;

    static POINTS: Mutex<Vec<Weak<Point>>> = Mutex::new(Vec::new());

    struct Point {
        name: String,
        state: Mutex<State>,
    }

    #[derive(Default)]
    struct State {
        must_panic: bool,
        waiting: Option<Waker>,
    }

    impl Point {
        fn pass(&self, cx: &mut Context<'_>) {
            let mut state = self.state.lock();
            if state.must_panic {
                drop(state);
                panic!("a test asked for it");
            }
            state.waiting = Some(cx.waker().clone());
        }
    }

    /// The names of all tasks and parts that run, sorted, each as often as it runs.
    pub fn running() -> Vec<String> {
        let mut names: Vec<String> =
            POINTS.lock().iter().filter_map(Weak::upgrade).map(|point| point.name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Has every task and part of this name panic; how many there are.
    pub fn panic_in(name: &str) -> usize {
        let found: Vec<Arc<Point>> =
            POINTS.lock().iter().filter_map(Weak::upgrade).filter(|point| point.name == name).collect();
        for point in &found {
            let mut state = point.state.lock();
            state.must_panic = true;
            let waiting = state.waiting.take();
            drop(state);
            waiting.into_iter().for_each(Waker::wake);
        }
        found.len()
    }

    pub(in super::super) fn at<Work>(name: &str, work: Work) -> impl Future<Output = ()> + Send + use<Work>
    where
        Work: Future<Output = ()> + Send + 'static,
    {
        let point = Arc::new(Point { name: name.to_owned(), state: Mutex::default() });
        let mut points = POINTS.lock();
        points.retain(|point| point.strong_count() > 0);
        points.push(Arc::downgrade(&point));
        drop(points);
        let mut work = Box::pin(work);
        poll_fn(move |cx| {
            point.pass(cx);
            work.as_mut().poll(cx)
        })
    }
}
