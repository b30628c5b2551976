//! Threads that stay: a parallel loop costs two atomic hand-overs, not a thread. Workers spin for a moment
//! after a loop, since the next one usually follows within microseconds, and then sleep.
//!
//! Which thread runs which task is left to chance; tasks must not care. The floor of a loop is the time a
//! spinning worker needs to see the new loop, some 0.2 µs; a sleeping one needs some 5 to 50 µs.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// Turns of the spinning loop before a worker sleeps: some 50 µs.
const SPINS: u32 = 20_000;

/// Turns between offers of the core to others: some 5 µs.
const YIELD_AFTER: u32 = 2_000;

type Body<'a> = dyn Fn(usize) + Sync + 'a;

/// A borrowed loop body whose lifetime the caller of [`Pool::run`] guards.
#[derive(Clone, Copy)]
struct Job {
    body: *const Body<'static>,
    tasks: usize,
}

// SAFETY: the body is `Sync`, and `Pool::run` does not return before every worker has let go of it.
unsafe impl Send for Job {}

struct Shared {
    /// Counts loops; a worker runs each loop once.
    generation: AtomicUsize,
    next_task: AtomicUsize,
    busy: AtomicUsize,
    job: Mutex<Option<Job>>,
    wake: Condvar,
    stop: AtomicBool,
    panicked: AtomicBool,
}

pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One loop at a time: models that run at once take turns.
    turn: Mutex<()>,
}

impl Pool {
    /// `threads` in all, the caller of [`Pool::run`] included.
    pub fn new(threads: usize) -> Pool {
        let shared = Arc::new(Shared {
            generation: AtomicUsize::new(0),
            next_task: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            job: Mutex::new(None),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let spawn = |_| {
            let shared = Arc::clone(&shared);
            // A thread that cannot be had is done without: results do not depend on the number.
            std::thread::Builder::new().name("pando-cpu".into()).spawn(move || work(&shared)).ok()
        };
        let workers = (1..threads.max(1)).filter_map(spawn).collect();
        Pool { shared, workers, turn: Mutex::new(()) }
    }

    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `body(0)`, …, `body(tasks - 1)` on all threads, in any order.
    pub fn run(&self, tasks: usize, body: &Body<'_>) {
        if tasks <= 1 || self.workers.is_empty() {
            (0..tasks).for_each(body);
            return;
        }
        let turn = self.turn.lock();
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes; this function waits below until no worker uses the body.
        let body: *const Body = unsafe { std::mem::transmute::<&Body<'_>, &'static Body<'static>>(body) };
        let job = Job { body, tasks };
        shared.next_task.store(0, Ordering::Relaxed);
        shared.busy.store(self.workers.len(), Ordering::Relaxed);
        {
            // Under the lock, or a worker about to sleep could miss the call below.
            let mut slot = lock(&shared.job);
            *slot = Some(job);
            shared.generation.fetch_add(1, Ordering::Release);
        }
        shared.wake.notify_all();
        run_tasks(shared, job);
        let mut spins = 0u32;
        while shared.busy.load(Ordering::Acquire) > 0 {
            std::hint::spin_loop();
            spins += 1;
            // A worker may wait for this very core.
            if spins.is_multiple_of(YIELD_AFTER) {
                std::thread::yield_now();
            }
        }
        drop(turn);
        assert!(!shared.panicked.swap(false, Ordering::Relaxed), "a task of a parallel loop panicked");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The guarded data is whole at every point where a panic could strike.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn run_tasks(shared: &Shared, job: Job) {
    let tasks = || {
        loop {
            let task = shared.next_task.fetch_add(1, Ordering::Relaxed);
            if task >= job.tasks {
                break;
            }
            // SAFETY: `Pool::run` keeps the body alive until `busy` is zero, which follows this call.
            unsafe { (*job.body)(task) };
        }
    };
    // A panic must not leave `Pool::run` waiting, nor let it return while others use the body.
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(tasks)).is_err() {
        shared.panicked.store(true, Ordering::Relaxed);
    }
}

fn work(shared: &Shared) {
    let mut seen = 0;
    loop {
        let Some(job) = next_job(shared, &mut seen) else { return };
        run_tasks(shared, job);
        shared.busy.fetch_sub(1, Ordering::Release);
    }
}

/// Waits for a loop not seen yet; `None` when the pool ends.
fn next_job(shared: &Shared, seen: &mut usize) -> Option<Job> {
    for _ in 0..SPINS {
        if shared.generation.load(Ordering::Acquire) != *seen || shared.stop.load(Ordering::Relaxed) {
            break;
        }
        std::hint::spin_loop();
    }
    let mut job = lock(&shared.job);
    while shared.generation.load(Ordering::Acquire) == *seen {
        if shared.stop.load(Ordering::Relaxed) {
            return None;
        }
        job = shared.wake.wait(job).unwrap_or_else(std::sync::PoisonError::into_inner);
    }
    *seen = shared.generation.load(Ordering::Acquire);
    *job
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Taking the lock orders the flag before a worker's last look at it.
        drop(lock(&self.shared.job));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks; there is nothing to learn from its end.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 4] {
            let pool = Pool::new(threads);
            for tasks in [0, 1, 2, 100] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(tasks, &|task| {
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    #[should_panic(expected = "a task of a parallel loop panicked")]
    fn panics_arrive() {
        Pool::new(2).run(8, &|task| assert!(task != 3));
    }
}
