"""Clouds, object storage, hosting, names and delivery networks."""

from __future__ import annotations

from engine.safety.content.patterns import ASK, BLOCK, Rule

_CLOUDS = (
    "doctl|hcloud|linode-cli|scw|oci|ibmcloud|vultr-cli|civo|exo|upctl|aliyun|tccli|hwcloud|yc|ovhcloud|metal|cloudctl"
)
_HOSTING = (
    "vercel|vc|netlify|ntl|railway|render|supabase|pscale|planetscale|neonctl|turso|fly|flyctl|surge|amplify|koyeb"
    "|zeabur"
    "|northflank|platform|upsun|scalingo|clever|convox|dokku|cf|cloudfoundry|apigeecli|fastly|flarectl"
    "|cloudflared"
)

RULES: tuple[Rule, ...] = (
    Rule(
        "cloud",
        BLOCK,
        "deletes something in the cloud",
        (
            "aws * delete-*|terminate-*|purge-*|remove-*|deregister-*|batch-delete-*|release-*|disassociate-*"
            "|schedule-key-deletion|unsubscribe|detach-*|revoke-*|reset-*|disable-*|cancel-*|abort-*|expire-*|leave-*",
            "aws * put-secret-value|update-secret|restore-secret|put-bucket-*|stop-*|delete|deactivate-*",
            "aws * change-resource-record-sets|put-role-policy|put-public-access-block @*delete*|*false*",
            "aws s3 rb",
            "aws s3 rm !--dryrun",
            "aws s3 sync --delete !--dryrun",
            "aws emr|sso|configure terminate-clusters|logout",
            "eb terminate|abort",
            "gsutil rm|rb !-n",
            "gsutil @rsync -d",
            "gsutil mv|rewrite|lifecycle|versioning set|-m",
            "gcloud @delete|destroy|abandon|reset|purge|delete-*|remove-*|disable|unlink|cancel|drain|destroy-*|rm"
            "|detach-disk|revoke|undelete|failover",
            "gcloud storage rsync --delete-unmatched-destination-objects",
            "bq rm|truncate",
            "bq update|load --expiration|--replace",
            "az @delete|purge|delete-*|deallocate|remove|delete-batch|empty|revoke|reset|*-delete|regenerate|disable"
            "|delete-instances|failover|undeploy",
            "az storage blob|file|fs sync --delete-destination",
            f"{_CLOUDS} @delete|destroy|rm|terminate|remove|purge|reset|delete-*|*-delete|remove-*|rebuild|detach",
            "heroku @*:destroy|*:delete|*:reset|*:remove|*:unset|*:revoke|*:kill|destroy|*:clear|*:rotate|*:leave"
            "|*:transfer",
            f"{_HOSTING} @remove|rm|delete|destroy|*:delete|*:remove|*:destroy|delete-*|unset|reset|clear|purge"
            "|apps:destroy"
            "|delete-service|delete-org|delete-space|*:clear|teardown|environment:delete|revoke|archive",
            "wrangler @delete|*:delete|rollback|purge|rm",
            "firebase @*:delete|*:remove|*:disable|*:unset|*:destroy",
            "gh-pages|surge teardown|-f",
        ),
        stops=(
            "aws s3 rm s3://my-bucket --recursive",
            "aws s3 rb s3://b --force",
            "aws ec2 terminate-instances --instance-ids i-1",
            "gcloud compute instances delete x",
            "aws --region eu-west-1 sqs purge-queue --queue-url u",
            "az group delete --name rg --yes",
            "heroku apps:destroy shop",
            "heroku pg:reset DATABASE",
            "doctl compute droplet delete 5",
            "fastly service delete --service-id x",
            "wrangler kv:namespace delete x",
        ),
        passes=(
            "aws s3 ls",
            "aws s3 cp a s3://b/",
            "gcloud compute instances list",
            "aws sqs receive-message",
            "az vm list",
            "heroku logs -t",
            "wrangler dev",
            "fastly service list",
        ),
    ),
    Rule(
        "cloud-move",
        ASK,
        "moves, stops or replaces something in the cloud",
        (
            "aws s3 mv",
            "aws cloudfront create-invalidation",
            "aws ec2 stop-instances|reboot-instances|modify-*",
            "aws iam|kms|organizations attach-*|put-*|update-*|create-access-key|move-account",
            "aws autoscaling|ecs|rds set-desired-capacity|reboot-db-instance|update-service @0|--desired-capacity=0",
            "gcloud @stop|suspend|set-iam-policy|rollback|move",
            "gcloud storage mv",
            "az @stop|restart|redeploy|swap|move",
            "heroku @*:rollback|*:stop|*:restart|maintenance:on|*:promote|ps:scale",
            "fly|flyctl|vercel|netlify|railway @suspend|rollback|scale|stop|down|alias",
            "nsupdate !-h|-V",
            "rndc|pdnsutil|knotc @delete*|delzone|flush*|zone-purge|reload|stop|freeze",
            "deck reset|sync",
            "deck gateway reset|sync",
            "kong delete|stop|migrations",
            "kong migrations reset|down",
        ),
        stops=(
            "aws s3 mv s3://a/b s3://a/c",
            "gcloud compute instances stop x",
            "deck gateway reset",
            "kong migrations reset",
        ),
        passes=("aws s3 cp s3://a/b .", "gcloud config list", "deck diff", "az account show"),
    ),
    Rule(
        "object-storage",
        BLOCK,
        "deletes from an object store",
        (
            "mc|mcli rm|rb|mirror --remove|--force|--recursive|-r",
            "mc|mcli rm|rb",
            "mc|mcli mirror --remove",
            "mc|mcli ilm|replicate|encrypt|anonymous|event|tag|version|admin|retention|legalhold|undo"
            " rm|remove|clear|import|set|suspend|user",
            "mc|mcli @remove|rm|clear|decommission",
            "s3cmd del|rm|rb|expire|delbucket|delpolicy|dellifecycle",
            "s3cmd sync|put --delete-removed|--delete-after",
            "s4cmd del",
            "s5cmd rm|rb",
            "s5cmd sync --delete",
            "azcopy remove|rm|sync @remove|rm|--delete-destination|--delete-destination=true",
            "azcopy remove|rm",
            "azcopy sync --delete-destination",
            "b2 delete*|rm|hide-file|cancel*|bucket|file|key @*delete*|*rm*|*hide*",
            "b2 delete*|rm|hide-file|cancel-*",
            "b2 bucket|file|key delete|hide|large",
            "swift delete",
            "ossutil|coscmd|obsutil|qshell rm|delete|rb|clear|batchdelete",
            "gcloud storage rm",
            "ipfs repo|pin gc|rm",
            "dvc gc|destroy|remove",
            "git-annex drop|unused|dropunused",
            "huggingface-cli|hf @delete*|delete",
        ),
        stops=("mc rm --recursive --force s3/b", "s3cmd del s3://b/x", "azcopy remove https://x", "b2 delete-bucket b"),
        passes=("mc ls s3/b", "s3cmd ls", "azcopy list https://x", "b2 list-buckets", "mc cp a s3/b"),
    ),
)
