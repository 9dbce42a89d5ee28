//! Delegation tokens (KIP-48).

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::create_delegation_token_request::CreatableRenewers;
use ottla_protocol::messages::describe_delegation_token_request::DescribeDelegationTokenOwner;
use ottla_protocol::messages::describe_delegation_token_response::DescribedDelegationToken;
use ottla_protocol::messages::{
    CreateDelegationTokenRequest, CreateDelegationTokenResponse, DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest, RenewDelegationTokenRequest,
};

use super::Admin;
use crate::error::ClientError;

/// Type and name of a principal.
pub type PrincipalParts = (ByteString, ByteString);

impl Admin {
    /// Creates a token for the client itself, unless an owner is given. `-1` as maximum lifetime
    /// means the broker's maximum.
    pub async fn create_delegation_token(
        &self,
        owner: Option<PrincipalParts>,
        renewers: &[PrincipalParts],
        max_lifetime_ms: i64,
    ) -> Result<CreateDelegationTokenResponse, ClientError> {
        let (owner_type, owner_name) = owner.unzip();
        let renewers = renewers
            .iter()
            .map(|(principal_type, name)| CreatableRenewers {
                principal_type: principal_type.clone(),
                principal_name: name.clone(),
                ..Default::default()
            });
        let request = CreateDelegationTokenRequest {
            owner_principal_type: owner_type,
            owner_principal_name: owner_name,
            renewers: renewers.collect(),
            max_lifetime_ms,
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        ClientError::check_code("creating a delegation token", response.error_code)?;
        Ok(response)
    }

    /// Renews a token. Returns its new expiry time.
    pub async fn renew_delegation_token(
        &self,
        hmac: Bytes,
        renew_period_ms: i64,
    ) -> Result<i64, ClientError> {
        let request = RenewDelegationTokenRequest {
            hmac,
            renew_period_ms,
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        ClientError::check_code("renewing a delegation token", response.error_code)?;
        Ok(response.expiry_timestamp_ms)
    }

    /// Changes the expiry time of a token; a negative period expires it at once. Returns its new
    /// expiry time.
    pub async fn expire_delegation_token(
        &self,
        hmac: Bytes,
        expiry_time_period_ms: i64,
    ) -> Result<i64, ClientError> {
        let request = ExpireDelegationTokenRequest {
            hmac,
            expiry_time_period_ms,
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        ClientError::check_code("expiring a delegation token", response.error_code)?;
        Ok(response.expiry_timestamp_ms)
    }

    /// The tokens of these owners and renewers, or all, as far as the client may see them.
    pub async fn describe_delegation_tokens(
        &self,
        owners: Option<&[PrincipalParts]>,
    ) -> Result<Vec<DescribedDelegationToken>, ClientError> {
        let owners = owners.map(|owners| {
            let owners = owners.iter();
            let owner = |(principal_type, name): &PrincipalParts| DescribeDelegationTokenOwner {
                principal_type: principal_type.clone(),
                principal_name: name.clone(),
                ..Default::default()
            };
            owners.map(owner).collect()
        });
        let request = DescribeDelegationTokenRequest {
            owners,
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        ClientError::check_code("describing delegation tokens", response.error_code)?;
        Ok(response.tokens)
    }
}
