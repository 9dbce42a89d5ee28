//! `delegation-tokens`: Kafka's `kafka-delegation-tokens.sh`.
//!
//! Kafka: `DelegationTokenCommand`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{anyhow, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use clap::{ArgGroup, Args};
use ottla_client::Admin;
use ottla_client::admin::PrincipalParts;
use ottla_protocol::messages::describe_delegation_token_response::DescribedDelegationToken;
use ottla_security::Principal;

use super::simple_date_format::SimpleDateFormat;
use super::{admin_client, block_on, report_on_stderr};

/// Create, renew, expire or describe delegation tokens.
///
/// The client must be authenticated, but not with a token; give its settings with --command-config.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
pub struct DelegationTokensArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: String,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    command_config: String,
    /// Create a token.
    #[arg(long, group = "action", requires = "max_life_time_period")]
    create: bool,
    /// Extend the life of a token.
    #[arg(long, group = "action", requires_all = ["hmac", "renew_time_period"], conflicts_with_all = ["owner_principal", "renewer_principal"])]
    renew: bool,
    /// Shorten the life of a token, or end it.
    #[arg(long, group = "action", requires_all = ["hmac", "expiry_time_period"], conflicts_with_all = ["owner_principal", "renewer_principal"])]
    expire: bool,
    /// Show tokens.
    #[arg(long, group = "action")]
    describe: bool,
    /// With --create: the owner of the token. With --describe: only tokens that this principal owns
    /// or may renew. As User:name; repeatable.
    #[arg(long, value_name = "PRINCIPAL")]
    owner_principal: Vec<String>,
    /// A principal that may renew the token besides its owner, as User:name. Repeatable.
    #[arg(long, value_name = "PRINCIPAL")]
    renewer_principal: Vec<String>,
    /// Maximum lifetime of the token, renewals included; -1 for the maximum that the broker allows.
    #[arg(long, value_name = "MS", requires = "create")]
    max_life_time_period: Option<i64>,
    /// How long the token stays valid after the renewal; -1 for as long as the broker allows.
    #[arg(long, value_name = "MS", requires = "renew")]
    renew_time_period: Option<i64>,
    /// How long the token stays valid; -1 to end it immediately.
    #[arg(long, value_name = "MS", requires = "expire")]
    expiry_time_period: Option<i64>,
    /// The HMAC of the token, in base64.
    #[arg(long)]
    hmac: Option<String>,
}

pub fn run(args: DelegationTokensArgs) -> ExitCode {
    block_on(async { report_on_stderr(act(&args).await) })
}

async fn act(args: &DelegationTokensArgs) -> anyhow::Result<()> {
    let owners = principals(&args.owner_principal)?;
    let renewers = principals(&args.renewer_principal)?;
    let hmac = match &args.hmac {
        Some(_) if args.create || args.describe => {
            bail!("--hmac selects the token to renew or to expire; leave it out")
        }
        Some(text) => {
            let decoded = BASE64_STANDARD.decode(text);
            Bytes::from(decoded.map_err(|_| anyhow!("--hmac is not valid base64"))?)
        }
        None => Bytes::new(),
    };
    let config = Some(args.command_config.as_str());
    let admin = admin_client::connect_to_either(
        Some(&args.bootstrap_server),
        None,
        config,
        "ottla-delegation-tokens",
    );
    let admin = admin.await?;
    if let Some(max_life_time_ms) = args.max_life_time_period {
        create(&admin, owners, &renewers, max_life_time_ms).await
    } else if let Some(period_ms) = args.renew_time_period {
        let text = args.hmac.as_deref().unwrap_or_default();
        println!(
            "Calling renew token operation with hmac :{text} , renew-time-period :{period_ms}"
        );
        let expiry = admin.renew_delegation_token(hmac, period_ms).await?;
        print!(
            "Completed renew operation. New expiry date : {}",
            date(expiry)?
        );
        Ok(())
    } else if let Some(period_ms) = args.expiry_time_period {
        let text = args.hmac.as_deref().unwrap_or_default();
        println!(
            "Calling expire token operation with hmac :{text} , expire-time-period :{period_ms}"
        );
        let expiry = admin.expire_delegation_token(hmac, period_ms).await?;
        print!(
            "Completed expire operation. New expiry date : {}",
            date(expiry)?
        );
        Ok(())
    } else {
        describe(&admin, &owners).await
    }
}

async fn create(
    admin: &Admin,
    owners: Vec<PrincipalParts>,
    renewers: &[PrincipalParts],
    max_life_time_ms: i64,
) -> anyhow::Result<()> {
    println!(
        "Calling create token operation with renewers :{} , max-life-time-period :{max_life_time_ms}",
        shown(renewers)
    );
    let owner = owners.into_iter().next();
    let created = admin.create_delegation_token(owner, renewers, max_life_time_ms);
    let created = created.await?;
    println!(
        "Created delegation token with tokenId : {}",
        created.token_id
    );
    let row = Row {
        token_id: &created.token_id,
        hmac: &created.hmac,
        owner: principal(&created.principal_type, &created.principal_name),
        requester: principal(
            &created.token_requester_principal_type,
            &created.token_requester_principal_name,
        ),
        renewers: shown(renewers),
        issued: created.issue_timestamp_ms,
        expiry: created.expiry_timestamp_ms,
        max: created.max_timestamp_ms,
    };
    print!("{}", table(&[row])?);
    Ok(())
}

async fn describe(admin: &Admin, owners: &[PrincipalParts]) -> anyhow::Result<()> {
    match owners.is_empty() {
        true => println!("Calling describe token operation for current user."),
        false => println!(
            "Calling describe token operation for owners: {}",
            shown(owners)
        ),
    }
    let asked = (!owners.is_empty()).then_some(owners);
    let tokens = admin.describe_delegation_tokens(asked).await?;
    print!("Total number of tokens : {}", tokens.len());
    let rows: Vec<Row<'_>> = tokens.iter().map(Row::of).collect();
    print!("{}", table(&rows)?);
    Ok(())
}

/// The displayed fields of a token.
struct Row<'a> {
    token_id: &'a str,
    hmac: &'a [u8],
    owner: String,
    requester: String,
    renewers: String,
    issued: i64,
    expiry: i64,
    max: i64,
}

impl Row<'_> {
    fn of(token: &DescribedDelegationToken) -> Row<'_> {
        let renewers = token.renewers.iter();
        let renewers: Vec<PrincipalParts> = renewers
            .map(|it| (it.principal_type.clone(), it.principal_name.clone()))
            .collect();
        Row {
            token_id: &token.token_id,
            hmac: &token.hmac,
            owner: principal(&token.principal_type, &token.principal_name),
            requester: principal(
                &token.token_requester_principal_type,
                &token.token_requester_principal_name,
            ),
            renewers: shown(&renewers),
            issued: token.issue_timestamp,
            expiry: token.expiry_timestamp,
            max: token.max_timestamp,
        }
    }
}

fn table(rows: &[Row<'_>]) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut line = |cells: [&str; 8]| {
        let [id, hmac, owner, requester, renewers, issued, expiry, max] = cells;
        let _ = writeln!(
            text,
            "\n{id:<15} {hmac:<30} {owner:<15} {requester:<15} {renewers:<25} {issued:<15} {expiry:<15} {max:<15}"
        );
    };
    line([
        "TOKENID",
        "HMAC",
        "OWNER",
        "REQUESTER",
        "RENEWERS",
        "ISSUEDATE",
        "EXPIRYDATE",
        "MAXDATE",
    ]);
    for row in rows {
        line([
            row.token_id,
            &BASE64_STANDARD.encode(row.hmac),
            &row.owner,
            &row.requester,
            &row.renewers,
            &date(row.issued)?,
            &date(row.expiry)?,
            &date(row.max)?,
        ]);
    }
    Ok(text)
}

fn date(timestamp_ms: i64) -> anyhow::Result<String> {
    let since_epoch = Duration::from_millis(timestamp_ms.max(0) as u64);
    Ok(SimpleDateFormat::new("yyyy-MM-dd'T'HH:mm")?.of(UNIX_EPOCH + since_epoch))
}

fn principals(texts: &[String]) -> anyhow::Result<Vec<PrincipalParts>> {
    let parsed = texts.iter().map(|text| {
        let principal = Principal::parse(text.trim()).map_err(|error| anyhow!("{error}"))?;
        Ok((principal.principal_type().into(), principal.name().into()))
    });
    parsed.collect()
}

fn principal(principal_type: &str, name: &str) -> String {
    format!("{principal_type}:{name}")
}

/// Formats principals like a Java list.
fn shown(principals: &[PrincipalParts]) -> String {
    let principals = principals.iter();
    let principals = principals.map(|(principal_type, name)| principal(principal_type, name));
    format!("[{}]", principals.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_shown_in_kafkas_columns() {
        let row = Row {
            token_id: "id",
            hmac: b"hmac",
            owner: "User:a".to_owned(),
            requester: "User:b".to_owned(),
            renewers: shown(&principals(&["User:c".to_owned(), " User:d".to_owned()]).unwrap()),
            issued: 0,
            expiry: 60_000,
            max: 120_000,
        };
        let shown = table(&[row]).unwrap();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(
            lines[1],
            "TOKENID         HMAC                           OWNER           REQUESTER       RENEWERS                  ISSUEDATE       EXPIRYDATE      MAXDATE        "
        );
        assert!(lines[3].starts_with(
            "id              aG1hYw==                       User:a          User:b          [User:c, User:d]          19"
        ), "{shown}");
    }
}
