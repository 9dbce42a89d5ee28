//! Without the feature `simulation`, the names are the types they are named after. That they cost
//! the same is proved by compiling, not by measuring.
#![cfg(not(feature = "simulation"))]

/// Compiles only if both types are the same.
trait Is<T> {}
impl<T> Is<T> for T {}

fn is<T: Is<U>, U>() {}

#[test]
fn the_types_are_those_that_they_stand_for() {
    is::<ottla_sync::Mutex<u8>, parking_lot::Mutex<u8>>();
    is::<ottla_sync::MutexGuard<'_, u8>, parking_lot::MutexGuard<'_, u8>>();
    is::<ottla_sync::RwLock<u8>, parking_lot::RwLock<u8>>();
    is::<ottla_sync::Condvar, parking_lot::Condvar>();
    is::<ottla_sync::ArcSwap<u8>, arc_swap::ArcSwap<u8>>();
    is::<ottla_sync::ArcSwapOption<u8>, arc_swap::ArcSwapOption<u8>>();
    is::<ottla_sync::Notify, tokio::sync::Notify>();
    is::<ottla_sync::Semaphore, tokio::sync::Semaphore>();
    is::<ottla_sync::mpsc::Sender<u8>, tokio::sync::mpsc::Sender<u8>>();
    is::<ottla_sync::oneshot::Sender<u8>, tokio::sync::oneshot::Sender<u8>>();
    is::<ottla_sync::watch::Sender<u8>, tokio::sync::watch::Sender<u8>>();
    is::<ottla_sync::atomic::AtomicUsize, std::sync::atomic::AtomicUsize>();
    is::<ottla_sync::task::JoinHandle<u8>, tokio::task::JoinHandle<u8>>();
    is::<ottla_sync::thread::JoinHandle<u8>, std::thread::JoinHandle<u8>>();
    is::<ottla_sync::fs::File, std::fs::File>();
    is::<ottla_sync::net::TcpStream, tokio::net::TcpStream>();
    is::<ottla_sync::net::TcpListener, tokio::net::TcpListener>();
    is::<ottla_sync::time::Interval, tokio::time::Interval>();
}
