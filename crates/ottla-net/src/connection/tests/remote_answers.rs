//! Answers with records from remote storage, which the threads of the store send.

use std::sync::mpsc;

use ottla_protocol::{Chunk, Encoded};
use ottla_sync::Semaphore;
use tokio::runtime::Runtime;

use super::*;

const FETCH_VERSION: i16 = 12;
const MIB: usize = 1 << 20;
/// The budget for remote reads. Each answer takes one unit.
const BUDGET: usize = 10;
const SOON: Duration = Duration::from_millis(50);

/// Answers each Fetch from remote storage, and other requests as [`Blind`].
struct Remote {
    answer_bytes: usize,
    budget: Arc<Semaphore>,
    fetches: AtomicUsize,
    others: Arc<Blind>,
}

impl Remote {
    fn new(answer_bytes: usize) -> Arc<Remote> {
        Arc::new(Remote {
            answer_bytes,
            budget: Arc::new(Semaphore::new(BUDGET)),
            fetches: AtomicUsize::new(0),
            others: Arc::default(),
        })
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::Relaxed)
    }

    /// Reads the answer to the Fetch with this correlation ID.
    async fn receive_records(&self, client: &mut (impl AsyncRead + Unpin), correlation_id: i32) {
        let length = client.read_i32().await.unwrap() as usize;
        assert_eq!(length, 4 + self.answer_bytes);
        assert_eq!(client.read_i32().await.unwrap(), correlation_id);
        let mut records = vec![0; self.answer_bytes];
        client.read_exact(&mut records).await.unwrap();
        assert!(records.iter().all(|&byte| byte == correlation_id as u8));
    }
}

impl Service for Remote {
    fn start_produce(
        self: &Arc<Self>,
        context: &RequestContext,
        reader: Reader,
    ) -> Result<Answer, RequestError> {
        self.others.start_produce(context, reader)
    }

    async fn handle(
        self: &Arc<Self>,
        context: &RequestContext,
        reader: Reader,
    ) -> Result<Answer, RequestError> {
        if context.api_key != ApiKey::Fetch {
            return self.others.handle(context, reader).await;
        }
        let memory = Arc::clone(&self.budget).acquire_owned().await;
        context.remote_memory.keep(vec![memory.unwrap()]);
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let length = 4 + self.answer_bytes as i32;
        let head = [length, context.correlation_id].map(i32::to_be_bytes);
        let records = vec![context.correlation_id as u8; self.answer_bytes];
        let chunks = vec![
            Chunk::Bytes(head.concat().into()),
            Chunk::Bytes(records.into()),
        ];
        Ok(Answer::Response {
            encoded: Encoded { chunks },
            error: ErrorCode::None,
        })
    }

    fn refuse_during_login(&self, request: MisplacedRequest) -> Option<Encoded> {
        self.others.refuse_during_login(request)
    }

    fn on_disconnected(self: &Arc<Self>, _: &Connection, _: bool) {}
}

/// A store with one thread.
struct StoreThread(Option<Runtime>);

impl StoreThread {
    fn of(network: &Network) -> StoreThread {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        {
            let _entered = runtime.enter();
            network.set_store_threads(Handle::current());
        }
        StoreThread(Some(runtime))
    }

    /// Blocks the thread until the result is dropped.
    fn block(&self) -> mpsc::Sender<()> {
        let (free, blocked) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let runtime = self.0.as_ref().expect("it runs");
        runtime.spawn(async move {
            begin.send(()).unwrap();
            let _ = blocked.recv();
        });
        begun.recv().unwrap();
        free
    }
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn fetch(correlation_id: i32) -> Vec<u8> {
    request(ApiKey::Fetch, FETCH_VERSION, correlation_id)
}

#[tokio::test]
async fn others_are_answered_while_the_threads_of_the_store_are_blocked() {
    let (network, service) = (network(&[]), Remote::new(MIB));
    let store = StoreThread::of(&network);
    let blocked = store.block();
    let plain = SecurityProtocol::Plaintext;
    let mut remote = connect_to(&network, plain, &service, &fetch(1)).await;
    until(|| service.fetches() == 1).await;
    let heartbeat = request(ApiKey::Heartbeat, HEARTBEAT_VERSION, 2);
    let mut other = connect_to(&network, plain, &service, &heartbeat).await;
    receive(&mut other, 2).await;
    let read = tokio::time::timeout(SOON, remote.read_u8()).await;
    read.expect_err("the threads of the store send it");
    // So that no more answers wait for these threads than the budget allows.
    assert_eq!(service.budget.available_permits(), BUDGET - 1);
    drop(blocked);
    service.receive_records(&mut remote, 1).await;
    until(|| service.budget.available_permits() == BUDGET).await;
}

#[tokio::test]
async fn small_answers_do_not_wait_for_the_threads_of_the_store() {
    let (network, service) = (network(&[]), Remote::new(1000));
    let store = StoreThread::of(&network);
    let _blocked = store.block();
    let plain = SecurityProtocol::Plaintext;
    let mut client = connect_to(&network, plain, &service, &fetch(1)).await;
    service.receive_records(&mut client, 1).await;
    until(|| service.budget.available_permits() == BUDGET).await;
}

/// Remote answers, others and Produces, all sent before the first is answered.
fn mixed_requests() -> Vec<u8> {
    let produce = |id| request(ApiKey::Produce, PRODUCE_VERSION, id);
    let heartbeat = |id| request(ApiKey::Heartbeat, HEARTBEAT_VERSION, id);
    let requests = [
        produce(1),
        fetch(2),
        produce(3),
        produce(4),
        heartbeat(5),
        fetch(6),
        fetch(7),
        heartbeat(8),
    ];
    requests.concat()
}

/// Without the first.
async fn receive_the_others(service: &Remote, client: &mut (impl AsyncRead + Unpin)) {
    for id in 2..=8 {
        match id {
            2 | 6 | 7 => service.receive_records(client, id).await,
            _ => receive(client, id).await,
        }
    }
}

#[tokio::test]
async fn answers_leave_in_the_order_of_the_requests() {
    let (network, service) = (network(&[]), Remote::new(5 * MIB));
    let _store = StoreThread::of(&network);
    let plain = SecurityProtocol::Plaintext;
    let mut client = connect_to(&network, plain, &service, &mixed_requests()).await;
    receive(&mut client, 1).await;
    receive_the_others(&service, &mut client).await;
}

#[tokio::test]
async fn answers_over_tls_leave_in_the_order_of_the_requests() {
    let authority = Authority::new("authority");
    let own = authority.issue(Wanted::default());
    let (network, trusting) = tls_network(&authority, &own, SecurityProtocol::Ssl, &[]);
    let service = Remote::new(5 * MIB);
    let store = StoreThread::of(&network);
    let blocked = store.block();

    let mut client = connect_tls(&network, SecurityProtocol::Ssl, &service, &trusting).await;
    client.write_all(&mixed_requests()).await.unwrap();
    client.flush().await.unwrap();
    receive(&mut client, 1).await;
    let read = tokio::time::timeout(SOON, client.read_u8()).await;
    read.expect_err("the threads of the store encrypt it");
    drop(blocked);
    receive_the_others(&service, &mut client).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_has_one_answer_in_memory_until_it_is_closed() {
    // More than the socket buffers of both ends hold.
    let answer_bytes = 48 * MIB;
    let (network, service) = (network(&[]), Remote::new(answer_bytes));
    let _store = StoreThread::of(&network);
    let requests = [1, 2, 3].map(fetch).concat();
    let plain = SecurityProtocol::Plaintext;
    let _client = connect_to(&network, plain, &service, &requests).await;
    until(|| network.unsent_answers.bytes() > 0).await;
    ottla_sync::time::sleep(SOON).await;
    assert_eq!(service.fetches(), 1);
    let unsent = network.unsent_answers.bytes();
    assert!((1..answer_bytes).contains(&unsent), "{unsent}");
    // The rest counts as unsent instead.
    until(|| service.budget.available_permits() == BUDGET).await;
    network.connections.for_each(Connection::close);
    until(|| network.connections.count() == 0).await;
    assert_eq!(network.unsent_answers.bytes(), 0);
}

#[tokio::test]
async fn a_connection_ends_whose_client_has_left_before_the_store_sends() {
    let (network, service) = (network(&[]), Remote::new(16 * MIB));
    let store = StoreThread::of(&network);
    let blocked = store.block();
    let plain = SecurityProtocol::Plaintext;
    let client = connect_to(&network, plain, &service, &fetch(1)).await;
    until(|| service.fetches() == 1).await;
    drop(client);
    drop(blocked);
    until(|| network.connections.count() == 0).await;
    assert_eq!(service.budget.available_permits(), BUDGET);
    assert_eq!(network.unsent_answers.bytes(), 0);
}
