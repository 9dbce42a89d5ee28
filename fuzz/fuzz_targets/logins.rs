//! What a peer can send before it has logged in, or a broker while this node logs in, and what a JAAS entry can say.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ottla_sasl::jaas::{JaasFile, parse_property};
use ottla_sasl::oauthbearer::InitialResponse;
use ottla_sasl::plain::PlainResponse;
use ottla_sasl::scram::ScramServer;
use ottla_sasl::{ClientCredentials, ClientLogin, Mechanism, ScramMechanism};

fuzz_target!(|bytes: &[u8]| {
    let _ = PlainResponse::parse(bytes);
    let _ = InitialResponse::parse(bytes);
    let mechanism = ScramMechanism::Sha256;
    let mut server = ScramServer::new(mechanism);
    if server.on_client_first(bytes).is_ok() {
        let decoy = mechanism.decoy(b"secret", "user", None);
        server.challenge(decoy, false, "nonce").expect("the first message was good");
    } else {
        server = ScramServer::new(mechanism);
        server.on_client_first(b"n,,n=user,r=abc").expect("a good message");
        let decoy = mechanism.decoy(b"secret", "user", None);
        server.challenge(decoy, false, "def").expect("the first message was good");
        assert!(server.on_client_final(bytes).is_err());
    }
    let credentials = ClientCredentials::password("user", "password");
    for mechanism in [Mechanism::Plain, Mechanism::Scram(mechanism)] {
        let client = ClientLogin::new(mechanism, &credentials, "abc".to_owned());
        let mut client = client.expect("a password suits both");
        client.first_message();
        let _ = client.on_message(bytes);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = parse_property(text).map_err(|error| error.to_string());
        let _ = JaasFile::parse(text).map_err(|error| error.to_string());
    }
});
