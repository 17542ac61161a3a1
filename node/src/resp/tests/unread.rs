//! Clients that write a whole pipeline before they read the first answer, and clients that never
//! read.

use super::*;

/// Bytes of a command.
fn command(args: &[&str]) -> Vec<u8> {
    let args: String = args
        .iter()
        .map(|a| format!("${}\r\n{a}\r\n", a.len()))
        .collect::<Vec<_>>()
        .concat();
    format!("*{}\r\n{args}", args.matches('$').count()).into_bytes()
}

/// Writes the same command many times, then reads all answers. Each must be this one.
async fn write_then_read(at: SocketAddr, commands: usize, one: &[u8], answer: &[u8]) {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let pipeline = one.repeat(1000);
    for _ in 0..commands / 1000 {
        stream.write_all(&pipeline).await.unwrap();
    }
    stream
        .write_all(&one.repeat(commands % 1000))
        .await
        .unwrap();
    let mut answered = vec![0; answer.len()];
    for n in 0..commands {
        stream.read_exact(&mut answered).await.unwrap();
        assert!(
            answered == answer,
            "answer {n}: {}",
            String::from_utf8_lossy(&answered[..answered.len().min(100)])
        );
    }
}

/// Regression: the node took no more commands until its answers were read, and the client read none
/// until its commands were taken. Both waited for ever.
#[tokio::test]
async fn a_client_that_writes_a_whole_pipeline_before_it_reads_gets_every_answer() {
    let node = Node::of_threads(
        2,
        None,
        20,
        Limits {
            memory_bytes_max: 4 << 30,
            ..limits()
        },
    );
    let mut client = node.client().await;
    let (small, large) = ("s".repeat(1000), "l".repeat(200_000));
    let mut set: Vec<Vec<&str>> = vec![
        vec!["SET", "{a}small", &small],
        vec!["SET", "{a}large", &large],
    ];
    set.extend(["b", "c", "d", "e", "f", "g"].map(|key| vec!["SET", key, &small]));
    client.pipeline(&set).await.unwrap();
    let bulk = |value: &str| format!("${}\r\n{value}\r\n", value.len());
    // The plain port forwards to the other thread the keys that it leads. On the other ports, the
    // node answers by itself.
    let mut served = None;
    for at in &node.clusters {
        let mut client = Client::connect(*at).await.unwrap();
        let answer = client.command(&["STRLEN", "{a}small"]).await.unwrap();
        served = served.or((answer == Reply::Int(1000)).then_some(*at));
    }
    let served = served.expect("one of the threads has the slot");
    for key in ["b", "c", "d", "e", "f", "g"] {
        write_then_read(
            node.resp,
            10_000,
            &command(&["GET", key]),
            bulk(&small).as_bytes(),
        )
        .await;
    }
    for at in [node.resp, served] {
        write_then_read(
            at,
            100_000,
            &command(&["GET", "{a}small"]),
            bulk(&small).as_bytes(),
        )
        .await;
        write_then_read(at, 1_000_000, &command(&["SET", "{a}x", "1"]), b"+OK\r\n").await;
        let values = format!("*3\r\n{0}{1}{0}", bulk(&large), bulk(&small));
        write_then_read(
            at,
            200,
            &command(&["MGET", "{a}large", "{a}small", "{a}large"]),
            values.as_bytes(),
        )
        .await;
    }
    // A reply that is encoded in several parts, among others.
    let keys: Vec<_> = (0..20)
        .map(|n| vec!["SET".to_owned(), format!("{n:060000}"), "1".to_owned()])
        .collect();
    client.pipeline(&keys).await.unwrap();
    let all = raw(node.resp, &command(&["KEYS", "000*"])).await;
    let (one, answer) = (
        command(&["GET", "absent"]).repeat(3000),
        "$-1\r\n".repeat(3000),
    );
    write_then_read(
        node.resp,
        40,
        &[command(&["KEYS", "000*"]), one].concat(),
        (all + &answer).as_bytes(),
    )
    .await;
    let text = |reply: Reply| match reply {
        Reply::Bulk(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    };
    // All of it is given back.
    while node.handle.stats().await.spilled_bytes > 0 {
        tokio::task::yield_now().await;
    }
    let info = text(client.command(&["INFO"]).await.unwrap());
    assert!(
        info.contains("\r\nmem_clients_output:")
            && info.contains("\r\nclient_output_buffer_limit_disconnections:0\r\n"),
        "{info}"
    );
    node.stop().await;
}

/// Clients that never read use up the room. The one that holds most is disconnected, and the others
/// go on.
#[tokio::test]
async fn the_client_with_most_unread_answers_is_disconnected_once_their_room_is_used_up() {
    // The room is 32 MiB.
    let node = Node::of_threads(
        2,
        None,
        20,
        Limits {
            memory_bytes_max: 128 << 20,
            ..limits()
        },
    );
    let mut client = node.client().await;
    let value = "v".repeat(1000);
    client.command(&["SET", "k", &value]).await.unwrap();
    let answer = format!("$1000\r\n{value}\r\n");
    let (modest, greedy) = (8_000, 300_000);
    let pipeline = |commands: usize| command(&["GET", "k"]).repeat(commands);
    let mut first = TcpStream::connect(node.resp).await.unwrap();
    first.write_all(&pipeline(modest)).await.unwrap();
    let mut second = TcpStream::connect(node.resp).await.unwrap();
    let began = std::time::Instant::now();
    let ended = second.write_all(&pipeline(greedy)).await;
    assert!(
        ended.is_err() && began.elapsed() < Duration::from_secs(60),
        "{ended:?} after {:?}",
        began.elapsed()
    );
    assert_eq!(node.handle.stats().await.front.connections_expelled, 1);
    let mut answers = vec![0; answer.len() * modest];
    first.read_exact(&mut answers).await.unwrap();
    assert!(answers == answer.repeat(modest).as_bytes());
    // The next client has the room.
    write_then_read(
        node.resp,
        20_000,
        &command(&["GET", "k"]),
        answer.as_bytes(),
    )
    .await;
    node.stop().await;
}
