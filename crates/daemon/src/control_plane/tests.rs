use canopus_engine::Engine;
use tokio::time::Instant;

use super::*;

async fn admit(mesh: &Mesh, address: [u8; 4]) -> Result<(), Refusal> {
    let mut peer = Peer { address: Some((address, 40_000).into()), ..Peer::default() };
    mesh.admit(&mut peer).await
}

#[tokio::test(start_paused = true)]
async fn fleet_that_comes_back_is_let_in_at_once_while_one_address_floods() {
    let readiness = Readiness::new();
    readiness.register("the world").ready();
    let mesh =
        Mesh::new(Dispatcher::unobserved(Engine::new())).guarded(readiness, 25.0).with_peer_allowance();
    let mesh = Arc::new(mesh);
    let flood: Vec<_> = (0..10_000)
        .map(|_| {
            let mesh = Arc::clone(&mesh);
            tokio::spawn(async move { admit(&mesh, [192, 0, 2, 1]).await })
        })
        .collect();
    // All of them have come, and wait for their turns or were refused.
    tokio::task::yield_now().await;
    let start = Instant::now();
    for number in 0..1000_u16 {
        let [high, low] = number.to_be_bytes();
        for _ in 0..2 {
            admit(&mesh, [10, 0, high, low]).await.unwrap();
        }
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "nobody of the fleet has waited");
    let mut admitted = 0;
    for stream in flood {
        admitted += u32::from(stream.await.unwrap().is_ok());
    }
    assert!(admitted < 100, "{admitted} of the flood were let in");
}
