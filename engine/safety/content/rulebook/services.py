"""Secrets, keys, monitoring, feature flags, identity: services whose loss is noticed by others first."""

from __future__ import annotations

from engine.safety.content.patterns import BLOCK, Rule

RULES: tuple[Rule, ...] = (
    Rule(
        "secrets",
        BLOCK,
        "deletes, replaces or revokes secrets",
        (
            "vault|bao secrets|auth|audit disable|move|tune",
            "vault|bao kv|policy|token|lease|plugin|namespace|identity|transit|pki delete|destroy|revoke|put|undelete"
            "|deregister"
            "|rollback|patch",
            "vault|bao kv metadata delete|put",
            "vault|bao delete",
            "vault|bao operator seal|step-down|rekey|rotate|generate-root|migrate|init",
            "vault|bao operator raft remove-peer|snapshot",
            "vault|bao lease|token revoke",
            "op item|document|vault|user|group|connect|service-account|account delete|remove|revoke|suspend|purge"
            "|forget",
            "op * * delete|revoke|remove",
            "doppler @delete|unset|revoke|remove",
            "chamber|credstash|confidant|akeyless|conjur|keeper|ksm|infisical|bw|bws|lpass|pass|gopass|rbw @delete|rm"
            "|purge"
            "|revoke|delete-all|deleteall|putall|remove|move|destroy|delete-item|trash",
            "security delete-*",
            "keyctl clear|unlink|revoke|purge|invalidate",
            "gpg|gpg2 --delete-key|--delete-keys|--delete-secret-key|--delete-secret-keys"
            "|--delete-secret-and-public-key",
            "gpg|gpg2 --gen-revoke|--generate-revocation",
            "sops rotate|--rotate|-r",
            "sops -r|--rotate",
            "ykman|yubico-piv-tool @reset",
            "ssh-add -D",
            "ssh-keygen -R",
            "certbot revoke|delete|unregister",
            "step ca revoke",
            "acme.sh --revoke|--remove",
            "kadmin|kadmin.local|ipa @delprinc*|user-del|host-del|*-del",
            "samba-tool|ldapdelete|ldapmodify user|group|domain|computer delete|demote",
            "ldapdelete",
            "kcadm.sh|kcadm delete",
            "okta|auth0|clerk|workos @delete|remove|deactivate|rm",
            "teleport|tctl rm",
        ),
        stops=(
            "vault secrets disable kv/",
            "op item delete x",
            "doppler secrets delete KEY",
            "vault kv put secret/x a=b",
            "gpg --delete-secret-key x",
            "pass rm -r work",
            "ldapdelete cn=a",
        ),
        passes=("vault kv get secret/x", "op item list", "doppler secrets list", "gpg --verify a.sig", "pass show a"),
    ),
    Rule(
        "monitoring",
        BLOCK,
        "deletes or silences monitoring",
        (
            "datadog|dog|datadog-ci|dogshell|pup @delete|delete*|mute|mute_all|remove",
            "newrelic|nr @delete|delete*|remove",
            "pd|pagerduty|opsgenie|lamp|victorops|betteruptime @delete|*:delete|disable|remove|*:remove|deletealert"
            "|resolve",
            "sentry-cli releases|monitors|projects|issues delete|mute|resolve",
            "grafana-cli|grafanactl|grizzly|gr plugins|admin|resources|dashboards remove|uninstall"
            "|reset-admin-password|delete",
            "promtool tsdb create-blocks-from|*delete*",
            "amtool silence add|expire",
            "amtool config delete",
            "logcli|lokitool|mimirtool|cortextool|tempo-cli @delete|rm",
            "zabbix_js|icingacli|nagios @delete|remove",
            "honeycomb|axiom|logdna|logzio|sumologic|dynatrace|dtctl|monaco delete|purge|@delete|trim",
            "launchdarkly|ldcli|flagsmith|unleash|unleash-cli|flipt|split|splitio|growthbook|statsig|configcat"
            "|optimizely"
            "|posthog @delete|remove|archive|kill|toggle-off|rm|*:delete|*:archive|disable",
            "envoy|consul-template|haproxy|socat @*quitquitquit*",
        ),
        stops=(
            "datadog monitor delete 5",
            "sentry-cli releases delete v1",
            "ldcli flags archive --flag a",
            "amtool silence add x",
        ),
        passes=(
            "datadog-ci junit upload a.xml",
            "promtool check config a.yml",
            "ldcli flags list",
            "amtool silence query",
        ),
    ),
    Rule(
        "money",
        BLOCK,
        "moves money or deletes billing records",
        (
            "stripe charges|payouts|transfers|refunds|payment_intents|subscriptions|invoices|customers|topups|prices"
            "|products"
            "|coupons|plans|setup_intents|disputes|webhook_endpoints|accounts|credit_notes|payment_links|quotes"
            " create|cancel|pay|confirm|delete|capture|send|void|void_invoice|finalize|finalize_invoice|close|refund"
            "|update|reverse",
            "stripe post|delete",
            "stripe @delete",
            "stripe * * create|cancel",
            "paypal|braintree|square|wise|coinbase|bitcoin-cli|lncli|litecoin-cli|adyen|gocardless|mollie|razorpay"
            " send*|pay*|transfer*|buy*|sell*|refund*|void*|withdraw*|close*|@delete|@cancel",
            "cast|eth|geth|solana|near|cardano-cli|spl-token|ethereal send|transfer|pay|burn|close|withdraw*",
        ),
        stops=("stripe payouts create --amount 5", "bitcoin-cli sendtoaddress a 1", "stripe customers delete cus_1"),
        passes=(
            "stripe listen",
            "bitcoin-cli getbalance",
            "stripe customers list",
            "stripe trigger payment_intent.succeeded",
        ),
    ),
)
