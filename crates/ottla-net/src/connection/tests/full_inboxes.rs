//! Produces after which a connection waits before it reads on.

use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use ottla_sync::{Mutex, Semaphore};

use super::*;
use crate::service::PendingAnswer;

/// Has the connection wait after its second Produce, and answers the first one during this wait.
struct Full {
    first: OnceLock<Arc<Late>>,
    /// Its permit ends the wait.
    room: Arc<Semaphore>,
    others: Arc<Blind>,
}

struct Late {
    answer: Mutex<Option<Answer>>,
    connection: Arc<Connection>,
    is_ready: AtomicBool,
    /// The first request, if this is another one.
    first: Option<Arc<Late>>,
    room: Arc<Semaphore>,
}

impl PendingAnswer for Late {
    fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    fn take(&self) -> Result<Answer, RequestError> {
        Ok(self.answer.lock().take().expect("it is taken once"))
    }

    fn room(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let first = self.first.clone()?;
        let room = Arc::clone(&self.room);
        Some(Box::pin(async move {
            first.is_ready.store(true, Ordering::Release);
            first.connection.wake();
            drop(room.acquire_owned().await);
        }))
    }
}

impl Service for Full {
    fn start_produce(
        self: &Arc<Self>,
        context: &RequestContext,
        reader: Reader,
    ) -> Result<Answer, RequestError> {
        let answer = self.others.start_produce(context, reader)?;
        let first = self.first.get().cloned();
        let late = Arc::new(Late {
            answer: Mutex::new(Some(answer)),
            connection: Arc::clone(&context.connection),
            is_ready: AtomicBool::new(first.is_some()),
            first,
            room: Arc::clone(&self.room),
        });
        self.first.get_or_init(|| Arc::clone(&late));
        Ok(Answer::Pending(late))
    }

    async fn handle(
        self: &Arc<Self>,
        context: &RequestContext,
        reader: Reader,
    ) -> Result<Answer, RequestError> {
        self.others.handle(context, reader).await
    }

    fn refuse_during_login(&self, request: MisplacedRequest) -> Option<Encoded> {
        self.others.refuse_during_login(request)
    }

    fn on_disconnected(self: &Arc<Self>, _: &Connection, _: bool) {}
}

#[tokio::test]
async fn earlier_requests_are_answered_while_a_connection_waits() {
    let service = Arc::new(Full {
        first: OnceLock::new(),
        room: Arc::new(Semaphore::new(1)),
        others: Arc::default(),
    });
    let no_room = Arc::clone(&service.room).acquire_owned().await;
    let requests = [7, 8].map(|id| request(ApiKey::Produce, PRODUCE_VERSION, id));
    let network = network(&[]);
    let plain = SecurityProtocol::Plaintext;
    let mut client = connect_to(&network, plain, &service, &requests.concat()).await;
    let first = ottla_sync::time::timeout(PATIENCE, receive(&mut client, 7)).await;
    first.expect("it does not wait for the second one");
    drop(no_room);
    receive(&mut client, 8).await;
}
