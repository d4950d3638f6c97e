"""What must not run unseen, as data (SPEC 3.5). Each rule's examples are tests.

A pattern is words separated by spaces: the programs (`git`, alternatives with `|`), then the sub-commands that must
follow each other (globs, alternatives), then options: `--force|-f` must be there, `!--dry-run` must not, `@*x*` some
argument matches the glob. Options are recognised in clusters (`-fd`), with `=value`, and by an unambiguous beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property

from engine.safety.content.calls import Call
from engine.values import Verdict

BLOCK, ASK = Verdict.BLOCK, Verdict.ASK


@dataclass(frozen=True)
class Rule:
    """One rule: `stops` and `passes` are commands it must and must not match."""

    id: str
    verdict: Verdict
    reason: str
    patterns: tuple[str, ...]
    stops: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()

    @cached_property
    def parsed(self) -> tuple[Pattern, ...]:
        """The patterns, taken apart once."""
        return tuple(Pattern.of(text) for text in self.patterns)


@dataclass(frozen=True)
class Pattern:
    """A pattern taken apart."""

    programs: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    needed: tuple[tuple[str, ...], ...]
    unwanted: tuple[tuple[str, ...], ...]
    globs: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, text: str) -> Pattern:
        first, *rest = text.split()
        return cls(
            tuple(first.split("|")),
            tuple(tuple(word.split("|")) for word in rest if word[0] not in "-!@"),
            tuple(tuple(word.split("|")) for word in rest if word[0] == "-"),
            tuple(tuple(word[1:].split("|")) for word in rest if word[0] == "!"),
            tuple(tuple(word[1:].split("|")) for word in rest if word[0] == "@"),
        )

    def matches(self, call: Call) -> bool:
        """Does the call fit?"""
        if not any(fnmatchcase(call.base, program) for program in self.programs):
            return False
        if self.words and not _follow(plain_words(call), self.words, 0 if call.base == "git" else 3):
            return False
        if not all(has_option(call.args, *options) for options in self.needed):
            return False
        if any(has_option(call.args, *options) for options in self.unwanted):
            return False
        return all(any(fnmatchcase(word.lower(), glob) for word in call.args for glob in globs) for globs in self.globs)


_GIT_VALUES = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"})


def plain_words(call: Call) -> list[str]:
    """The arguments that are no options; for git without the values of its global options."""
    words: list[str] = []
    skip = False
    for word in call.args:
        if skip:
            skip = False
        elif call.base == "git" and not words and word in _GIT_VALUES:
            skip = True
        elif not word.startswith("-"):
            words.append(word)
    return words


def _follow(words: list[str], wanted: tuple[tuple[str, ...], ...], latest: int) -> bool:
    """Do the wanted words follow each other, beginning at most at place `latest`?"""
    for start in range(min(latest, len(words) - len(wanted)) + 1):
        if all(
            any(fnmatchcase(words[start + offset].lower(), one) for one in options)
            for offset, options in enumerate(wanted)
        ):
            return True
    return False


def has_option(args: list[str], *options: str) -> bool:
    """Is one of the options among the arguments before `--`?"""
    for word in args:
        if word == "--":
            return False
        for option in options:
            if word == option or word.startswith(option + "="):
                return True
            if option.startswith("--") and word.startswith("--") and len(word) >= 6 and option.startswith(word):
                return True
            short = len(option) == 2 and option[0] == "-" and option[1].isalpha()
            if short and word[:1] == "-" and word[1:2] != "-" and word[1:].isalpha() and option[1] in word[1:]:
                return len(word) <= 8
    return False


RULES: tuple[Rule, ...] = (
    Rule(
        "git-discard",
        BLOCK,
        "throws away work that git cannot bring back",
        (
            "git reset --hard",
            "git reset --merge",
            "git clean -f|--force !-n|--dry-run",
            "git clean -fd|-fdx|-xdf|-df !-n|--dry-run",
            "git checkout -- @*",
            "git checkout -f|--force",
            "git checkout .",
            "git restore !--staged|-S",
            "git restore --worktree|-W",
            "git stash drop|clear",
            "git reflog expire|delete",
            "git gc --prune",
            "git prune !-n|--dry-run",
            "git branch -D",
            "git branch --delete --force",
            "git tag -d|--delete",
            "git worktree remove --force|-f",
            "git update-ref -d",
            "git filter-branch|filter-repo",
            "git switch --discard-changes|-f|--force",
            "git rm -f|--force !--cached",
            "git rm -r !--cached|-n|--dry-run",
            "git submodule deinit -f|--force",
            "git lfs prune",
            "git read-tree --reset",
            "git checkout-index -f|--force",
        ),
        stops=("git reset --hard", "/usr/bin/git -C x reset --hard HEAD~1", "git clean -fdx", "git stash clear"),
        passes=("git reset HEAD~1", "git clean -n", "git stash pop", "git commit -m 'git reset --hard'"),
    ),
    Rule(
        "git-publish-force",
        BLOCK,
        "overwrites or deletes history that others have",
        (
            "git push --force|-f !--force-with-lease",
            "git push --force-with-lease",
            "git push --mirror|--prune",
            "git push --delete|-d",
            "git push @:?*",
            "git push @+?*",
            "git remote remove|rm",
        ),
        stops=("git push --force origin main", "git push -f", "git push origin :old", "git push origin +main"),
        passes=("git push origin main", "git push origin HEAD:review"),
    ),
    Rule(
        "disk",
        BLOCK,
        "overwrites a disk or a file system",
        (
            "mkfs|mkfs.*|mke2fs|newfs*|wipefs|blkdiscard",
            "fdisk|sfdisk|gdisk|sgdisk|parted|cfdisk !-l|--list|--print|--help|--version",
            "hdparm --security-erase",
            "shred @/dev/*",
            "cryptsetup luksformat|erase",
            "diskutil erase*|zerodisk|partitiondisk|apfs",
            "mdadm --zero-superblock|--stop",
            "zpool destroy",
            "zfs destroy",
            "lvremove|vgremove|pvremove",
            "btrfs subvolume delete",
            "format @?:",
        ),
        stops=("mkfs.ext4 /dev/sda1", "zpool destroy tank"),
        passes=("dd if=a of=b", "fdisk -l", "dd if=/dev/sda of=/dev/null"),
    ),
    Rule(
        "machine",
        BLOCK,
        "stops the machine or a part of it that everything needs",
        (
            "shutdown|poweroff|halt|reboot",
            "init 0|6",
            "systemctl poweroff|reboot|halt|mask|isolate",
            "telinit 0|6",
            "kill -9 @-1",
            "kill @-1",
            "userdel|groupdel|deluser",
            "crontab -r",
            "iptables|ip6tables -F|--flush",
            "nft flush",
            "ufw disable|reset",
            "setenforce 0",
            "visudo|chpasswd|pwconv",
        ),
        stops=("sudo shutdown -h now", "crontab -r", "kill -9 -1"),
        passes=("crontab -l", "kill -9 123", "systemctl status"),
    ),
    Rule(
        "containers",
        BLOCK,
        "deletes containers, volumes or cluster objects",
        (
            "docker|podman|nerdctl system|volume|image|container|network|builder prune",
            "docker|podman|nerdctl volume|network rm|remove",
            "docker|podman|nerdctl rm -f|--force",
            "docker|podman|nerdctl rmi -f|--force",
            "docker|docker-compose|podman-compose compose down -v|--volumes",
            "docker-compose|podman-compose down -v|--volumes",
            "docker swarm|stack|secret|service leave|rm|remove",
            "kubectl|oc delete !--dry-run",
            "kubectl|oc drain|cordon",
            "kubectl|oc replace --force",
            "kubectl|oc scale --replicas=0",
            "kubectl|oc rollout undo",
            "helm uninstall|delete|rollback !--dry-run",
            "kustomize @delete",
            "minikube|kind|k3d|eksctl|k3s delete",
            "crictl rm|rmi|rmp -f|--force|-a|--all",
        ),
        stops=("kubectl delete namespace prod", "docker system prune -af", "docker compose down -v"),
        passes=("kubectl get pods", "docker ps -a", "docker compose down", "kubectl delete pod x --dry-run=client"),
    ),
    Rule(
        "infrastructure",
        BLOCK,
        "destroys infrastructure",
        (
            "terraform|tofu|terragrunt destroy|taint|force-unlock",
            "terraform|tofu|terragrunt apply -destroy|-auto-approve|--auto-approve",
            "terraform|tofu|terragrunt state rm|push",
            "terraform|tofu workspace delete",
            "pulumi destroy",
            "pulumi stack rm",
            "pulumi up --yes|-y",
            "cdk destroy",
            "serverless|sls remove",
            "ansible @*state=absent*",
            "vagrant destroy",
            "packer @-force",
            "nomad job|system|namespace|node stop|gc|delete|purge|drain",
            "consul kv delete",
        ),
        stops=("terraform destroy -auto-approve", "pulumi destroy --yes"),
        passes=("terraform plan", "pulumi preview"),
    ),
    Rule(
        "cloud",
        BLOCK,
        "deletes or overwrites something in the cloud",
        (
            "aws * delete-*|terminate-*|purge-*|remove-*|deregister-*|reset-*|revoke-*|disable-*|schedule-key-deletion",
            "aws * cancel-*|unsubscribe|detach-*|put-secret-value|update-secret|restore-secret|put-bucket-*|stop-*",
            "aws * batch-delete-*|release-*|disassociate-*|put-bucket-lifecycle*|delete-message*",
            "aws s3 rb",
            "aws s3 rm !--dryrun",
            "aws s3 mv",
            "aws s3 sync --delete !--dryrun",
            "gsutil rm|rb",
            "gsutil @rsync -d",
            "gcloud * delete|destroy|disable|remove-*|abandon|reset",
            "gcloud * * delete|destroy|disable|remove-*|reset",
            "gcloud * * * delete|destroy|disable",
            "az * delete|purge|remove|delete-*|deallocate",
            "az * * delete|purge|remove|delete-*",
            "az * * * delete|purge",
            "doctl|hcloud|linode-cli|scw|oci|ibmcloud|vultr-cli * delete|destroy|rm",
            "doctl|hcloud|linode-cli|scw|oci|ibmcloud|vultr-cli * * delete|destroy|rm|terminate",
            "heroku *:destroy|*:delete|*:reset|*:remove|*:unset",
            "heroku * @*destroy*",
            "fly|flyctl * destroy|delete|remove",
            "fly|flyctl destroy",
            "vercel|netlify|railway|render|supabase|planetscale|pscale|neonctl remove|rm|delete|*:delete",
            "vercel|netlify|railway|render|supabase|planetscale|pscale|neonctl * remove|rm|delete|*:delete",
            "supabase|prisma db|migrate reset",
            "wrangler delete",
            "wrangler * delete",
            "wrangler * * delete",
            "firebase *:delete|*:remove|*:disable",
            "cf|cloudfoundry delete*",
            "mc rm|rb|mirror --remove|--force|--recursive",
            "mc rm|rb",
            "s3cmd del|rm|rb|expire",
            "s3cmd sync --delete-removed",
            "s5cmd rm|rb",
            "azcopy remove|rm",
            "azcopy sync --delete-destination",
            "b2 delete*|rm|hide-file",
        ),
        stops=(
            "aws s3 rm s3://my-bucket --recursive",
            "aws s3 rb s3://b --force",
            "aws ec2 terminate-instances --instance-ids i-1",
            "gcloud compute instances delete x",
            "aws --region eu-west-1 sqs purge-queue --queue-url u",
        ),
        passes=("aws s3 ls", "aws s3 cp a s3://b/", "gcloud compute instances list", "aws sqs receive-message"),
    ),
    Rule(
        "secrets",
        BLOCK,
        "deletes or rotates secrets",
        (
            "vault secrets|auth|audit disable|move",
            "vault kv|policy|token|lease|plugin|namespace delete|destroy|revoke|put|undelete|deregister|rollback",
            "vault kv metadata delete",
            "vault delete",
            "vault operator seal|step-down|rekey|rotate|generate-root",
            "vault operator raft remove-peer",
            "op item|document|vault|user|group|connect|service-account delete|remove|revoke|suspend|purge",
            "op * * delete|revoke|remove",
            "doppler secrets|configs|environments|projects|workplace delete|unset",
            "doppler * * delete|revoke",
            "chamber delete",
            "infisical|bw|lpass|pass|gopass * delete|rm|purge",
            "bw|lpass|pass|gopass delete|rm|purge",
            "gpg --delete-key|--delete-secret-key|--delete-secret-keys|--delete-keys",
            "sops rotate",
        ),
        stops=("vault secrets disable kv/", "op item delete x", "doppler secrets delete KEY"),
        passes=("vault kv get secret/x", "op item list", "doppler secrets list"),
    ),
    Rule(
        "backups",
        BLOCK,
        "deletes backups or what is only at the far end",
        (
            "borg|borgmatic delete|prune|compact|recreate !--dry-run|-n",
            "borg break-lock|break-lock",
            "restic forget|prune|rewrite !--dry-run|-n",
            "restic key|unlock remove",
            "restic unlock --remove-all",
            "rclone sync|delete|deletefile|purge|rmdir|rmdirs|move|moveto|cleanup|bisync|dedupe !--dry-run|-n",
            "velero delete",
            "velero * delete",
            "velero uninstall",
            "duplicity remove-*|cleanup",
            "duplicity --force",
            "kopia snapshot|repository|policy delete|disconnect|expire",
            "tmutil delete*",
            "rsync !-n|--dry-run --delete|--del|--delete-before|--delete-during|--delete-after|--delete-excluded",
            "rsync !-n|--dry-run --delete-delay|--delete-missing-args",
        ),
        stops=("rsync -a --delete /src/ /dest/", "borg delete repo::a", "restic forget --prune x", "rclone purge r:b"),
        passes=("rsync -an --delete a b", "borg list", "rclone copy a r:b", "restic snapshots"),
    ),
    Rule(
        "queues",
        BLOCK,
        "deletes topics, queues, streams or their data",
        (
            "kafka-*|kafka-*.sh --delete|--remove|--delete-offsets|--reset-offsets !--dry-run",
            "kafka-delete-records*",
            "kafka-configs*|kafka-acls* --delete-config|--remove",
            "rpk|kcat|kaf topic|group|acl delete|trim-prefix",
            "rabbitmqctl delete_*|purge_queue|reset|force_reset|stop_app|clear_*|forget_cluster_node|stop|close_*",
            "rabbitmqadmin delete|purge|close",
            "rabbitmqadmin * delete|purge",
            "nats stream|consumer|kv|object|obj|str|con|context|account rm|del|delete|purge|rmm",
            "nats * * rm|del|delete|purge",
            "redis-cli|valkey-cli|keydb-cli flushall|flushdb|shutdown|del|unlink|script",
            "redis-cli|valkey-cli|keydb-cli @flushall|flushdb",
            "pulsar-admin * delete*",
        ),
        stops=("kafka-topics --delete --topic t", "rabbitmqctl delete_vhost /x", "redis-cli FLUSHALL"),
        passes=("kafka-topics --list", "rabbitmqctl list_queues", "redis-cli get x"),
    ),
    Rule(
        "databases",
        BLOCK,
        "drops a database",
        (
            "dropdb|dropuser",
            "mysqladmin drop|shutdown",
            "mongo|mongosh @*drop*|*deletemany*|*remove(*",
            "mongorestore --drop",
            "pg_restore --clean|-c",
            "rails|rake|bin/rails|bundle db:drop|db:reset|db:schema:load|db:migrate:reset",
            "manage.py|django-admin flush|reset_db|sqlflush",
            "python @*manage.py @flush|reset_db",
            "php @artisan @migrate:fresh|migrate:reset|db:wipe|migrate:refresh",
            "artisan migrate:fresh|migrate:reset|db:wipe",
            "alembic downgrade base",
            "prisma|npx migrate reset",
            "npx prisma migrate reset",
            "npx|prisma @db @push @--force-reset",
            "influx delete",
            "influx * delete",
            "etcdctl del",
            "cqlsh @*drop *|*truncate *",
        ),
        stops=("dropdb shop", "rails db:drop", "mongosh --eval 'db.dropDatabase()'"),
        passes=("createdb shop", "rails db:migrate", "pg_dump shop"),
    ),
    Rule(
        "ci",
        BLOCK,
        "deletes in a code host or a build server",
        (
            "gh repo|release|secret|variable|gist|issue|label delete|archive|remove",
            "gh ssh-key|gpg-key|cache|codespace|project delete|archive|remove",
            "gh repo edit --visibility",
            "gh run|workflow delete|cancel|disable",
            "gh api -X|--method @delete",
            "gh api @-xdelete|--method=delete|--request=delete",
            "glab repo|project|release|variable|issue|mr|ci|label|ssh-key|runner delete|remove|unregister|archive",
            "glab * * delete",
            "glab api -X|--method @delete",
            "gitlab-runner unregister",
            "gitlab-rails|gitlab-rake|gitlab-ctl @*destroy*|*delete*|*cleanup*|cleanse",
            "circleci * delete|remove-secret|delete-*|remove-*",
            "circleci * * delete|remove",
            "java @*jenkins-cli* @delete-*|quiet-down|safe-shutdown|shutdown|restart|safe-restart",
            "java @*jenkins-cli* @disable-*|clear-queue",
            "jenkins-cli|jenkins delete-*|shutdown|safe-shutdown|restart",
            "travis|buildkite-agent|drone|argocd|flux * delete|rm|uninstall",
            "travis|buildkite-agent|drone|argocd|flux delete|uninstall",
        ),
        stops=(
            "gh repo delete a/b --yes",
            "java -jar jenkins-cli.jar -s u delete-job x",
            "gh api -X DELETE /repos/a/b",
        ),
        passes=("gh pr list", "circleci project list", "java -jar app.jar"),
    ),
    Rule(
        "packages",
        BLOCK,
        "removes software or takes a published package away",
        (
            "npm|yarn|pnpm unpublish|deprecate",
            "cargo yank",
            "gem yank",
            "apt|apt-get|aptitude purge|remove|autoremove|dist-upgrade -y|--yes|--assume-yes",
            "dnf|yum remove|erase|autoremove -y|--assumeyes",
            "pacman -Rns|-Rdd|-Rsc",
            "dpkg --purge|-P",
            "dpkg --force-all",
            "rpm -e|--erase",
            "brew uninstall --force|--zap",
        ),
        stops=("npm unpublish pkg --force", "cargo yank --vers 1.0"),
        passes=("npm install", "pip uninstall x", "apt-get install -y jq"),
    ),
    Rule(
        "publish",
        ASK,
        "publishes to the world outside",
        (
            "npm|pnpm|yarn|cargo|poetry|uv|flit|hatch|bun|vsce|ovsx publish !--dry-run",
            "twine upload",
            "gem push",
            "mvn|gradle|./gradlew|gradlew deploy|publish",
            "docker|podman push",
            "docker|podman image push",
            "gh release|pr|issue|gist|discussion create|comment|merge|close|edit|review",
            "glab mr|issue|release create|note|merge|close",
        ),
        stops=("npm publish", "gh pr create --fill", "twine upload dist/*"),
        passes=("cargo publish --dry-run", "gh pr view 3", "npm run publish-docs"),
    ),
    Rule(
        "message",
        ASK,
        "sends a message to someone",
        (
            "sendmail|mutt|swaks|msmtp|ssmtp|mailx",
            "mail -s",
            "slack|slack-cli|telegram-send|discord|twurl|toot|t|signal-cli|apprise chat|post|update|send|tweet|toot|dm",
            "telegram-send|swaks|apprise",
            "twilio api:*|messages:*",
            "aws ses|sesv2|sns|pinpoint send-*|publish*",
            "nats|kafka-console-producer*|rabbitmqadmin pub|publish|request",
        ),
        stops=("mail -s hello a@b.example", "aws ses send-email --to a", "sendmail x@y.example"),
        passes=("aws sns list-topics", "mail", "cat mail.txt"),
    ),
    Rule(
        "money",
        BLOCK,
        "moves money",
        (
            "stripe charges|payouts|transfers|refunds create|cancel|pay|confirm|delete",
            "stripe payment_intents|subscriptions|invoices|customers create|cancel|pay|confirm|delete",
            "stripe post|delete",
            "paypal|braintree|square|wise|coinbase|bitcoin-cli|lncli send*|pay*|transfer*|buy*|sell*",
            "cast|eth|geth|solana|near send|transfer|pay",
        ),
        stops=("stripe payouts create --amount 5", "bitcoin-cli sendtoaddress a 1"),
        passes=("stripe listen", "bitcoin-cli getbalance"),
    ),
)


@cache
def _by_program() -> tuple[dict[str, list[tuple[Rule, Pattern]]], list[tuple[Rule, Pattern]]]:
    """Patterns by the program they name, and those that name programs by a glob; blocks before asks in each."""
    named: dict[str, list[tuple[Rule, Pattern]]] = {}
    globs: list[tuple[Rule, Pattern]] = []
    for rule in sorted(RULES, key=lambda rule: rule.verdict is ASK):
        for pattern in rule.parsed:
            for program in pattern.programs:
                if set(program) & set("*?["):
                    globs.append((rule, pattern))
                else:
                    named.setdefault(program, []).append((rule, pattern))
    return named, globs


def find_rule(call: Call) -> Rule | None:
    """The first rule a call breaks, blocks before asks."""
    named, globs = _by_program()
    found = [rule for rule, pattern in (*named.get(call.base, ()), *globs) if pattern.matches(call)]
    return min(found, key=lambda rule: rule.verdict is ASK, default=None)
