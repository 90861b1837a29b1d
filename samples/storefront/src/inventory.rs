//! How much there is of everything: a protocol of lines over TCP. `STOCK kettle` is answered with a number.

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::place::{listen, service};

/// More than this on one connection is no question.
const LONGEST: u64 = 4096;

pub(crate) async fn serve() -> Result<()> {
    let listener = listen(7000).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            if let Err(error) = answer(stream).await {
                println!("{error:#}");
            }
        });
    }
}

async fn answer(stream: TcpStream) -> Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader.take(LONGEST)).lines();
    while let Some(line) = lines.next_line().await? {
        let answer = match line.strip_prefix("STOCK ") {
            Some(product) => format!("{}\n", product.len() * 7),
            None => "ERROR expected STOCK product\n".to_owned(),
        };
        writer.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

/// Asks for the stock of products, on a connection of its own.
pub(crate) async fn stock<const N: usize>(products: [&str; N]) -> Result<Vec<u32>> {
    let address = service("inventory", 7000);
    let stream = TcpStream::connect(&address).await.with_context(|| address.clone())?;
    let (reader, mut writer) = stream.into_split();
    let question: String = products.iter().map(|product| format!("STOCK {product}\n")).collect();
    writer.write_all(question.as_bytes()).await?;
    let mut lines = BufReader::new(reader.take(LONGEST)).lines();
    let mut stock = Vec::new();
    while stock.len() < N {
        let line = lines.next_line().await?.context("the inventory closed the connection")?;
        ensure!(!line.starts_with("ERROR"), line);
        stock.push(line.parse()?);
    }
    Ok(stock)
}
