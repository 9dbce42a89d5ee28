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
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::admin::PrincipalParts;
///
/// let alice: PrincipalParts = ("User".into(), "alice".into());
/// println!("{}", admin.describe_delegation_tokens(Some(&[alice])).await?.len());
/// # Ok(())
/// # }
/// ```
pub type PrincipalParts = (ByteString, ByteString);

impl Admin {
    /// Creates a token for the client itself, unless an owner is given. `-1` as maximum lifetime
    /// means the broker's maximum.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::admin::PrincipalParts;
    ///
    /// // Bob may renew the token, which lives for a day at most.
    /// let bob: PrincipalParts = ("User".into(), "bob".into());
    /// let token = admin.create_delegation_token(None, &[bob], 86_400_000).await?;
    /// println!("{} expires at {}", token.token_id, token.expiry_timestamp_ms);
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let token = admin.create_delegation_token(None, &[], -1).await?;
    /// let one_hour = 3_600_000;
    /// let expires_at = admin.renew_delegation_token(token.hmac, one_hour).await?;
    /// println!("expires at {expires_at}");
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::admin::PrincipalParts;
    ///
    /// // Of Alice only: without owners, these would be the tokens of all users.
    /// let alice: PrincipalParts = ("User".into(), "alice".into());
    /// for token in admin.describe_delegation_tokens(Some(&[alice])).await? {
    ///     admin.expire_delegation_token(token.hmac, -1).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// for token in admin.describe_delegation_tokens(None).await? {
    ///     println!("{} of {}", token.token_id, token.principal_name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
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
