"""Databases, search, queues, backups: what holds the only copy of data."""

from __future__ import annotations

from engine.safety.content.patterns import BLOCK, Rule

RULES: tuple[Rule, ...] = (
    Rule(
        "databases",
        BLOCK,
        "drops or empties a database",
        (
            "dropdb|dropuser|pg_resetwal|pg_dropcluster|mysql_install_db|myisamchk|innochecksum",
            "mysqladmin|mariadb-admin drop|shutdown|flush-*|kill",
            "mongorestore|mongoimport --drop",
            "pg_restore --clean|-c",
            "initdb|mysqld --initialize|--skip-grant-tables",
            "rails|rake|bundle|bin/rails|bin/rake|spring|hanami @db:drop*|db:reset*|db:schema:load*|db:migrate:reset*"
            "|db:purge*"
            "|db:truncate_all|db:setup|db:structure:load",
            "manage.py|django-admin|python|uv|poetry|flask|pdm|hatch @flush|reset_db|sqlflush|reset_schema|drop_all"
            "|drop_db"
            "|drop-db|remove_stale_contenttypes",
            "php|artisan|sail|symfony|bin/console|console @migrate:fresh|migrate:reset|db:wipe|migrate:refresh"
            "|doctrine:database:drop|doctrine:schema:drop|doctrine:mongodb:schema:drop|orm:schema-tool:drop|db:drop",
            "drush|wp @sql-drop|sql:drop|drop|reset|site-install|delete|clean|empty|uninstall !--dry-run",
            "alembic|flask|aerich downgrade base",
            "flask @db @downgrade",
            "flyway clean|repair|undo",
            "liquibase dropall|drop-all|rollback*",
            "knex|sequelize|sequelize-cli|typeorm|mikro-orm|drizzle-kit|prisma|npx|pnpm|yarn|bunx @db:drop"
            "|migrate:rollback"
            "|schema:drop|db:migrate:undo*|migrate:undo|migration:revert|drop",
            "prisma|npx|pnpm|yarn|bunx migrate|db reset",
            "npx|pnpm|yarn|bunx prisma|supabase|drizzle-kit|drizzle migrate|db|drop reset|push|drop @reset|drop"
            "|--force-reset",
            "prisma|npx|pnpm|yarn|bunx @db @push --force-reset|--accept-data-loss",
            "supabase db|migration|projects|functions|secrets|branches reset|delete|unset|repair",
            "mix ecto.drop|ecto.reset|ecto.rollback",
            "diesel|sqlx|sea-orm-cli|goose|dbmate|migrate|atlas|sql-migrate database|migrate|db|schema drop|reset"
            "|fresh|refresh"
            "|redo|revert|clean",
            "diesel|sqlx|goose|dbmate|migrate drop|reset|down-to|rollback|down|force",
            "influx|influxd delete",
            "influx * delete|rm",
            "redis-cli|valkey-cli|keydb-cli|dragonfly flushall|flushdb|shutdown|del|unlink|script|swapdb|debug"
            "|failover",
            "redis-cli|valkey-cli|keydb-cli @flushall|flushdb|shutdown|swapdb|unlink|resetstat|reset|failover|debug"
            "|migrate",
            "redis-cli|valkey-cli|keydb-cli config|cluster|acl|function|xgroup set|reset|forget|deluser|delete"
            "|destroy|flushslots|flush",
            "redis-cli --cluster @del-node|reshard|fix|call",
            "nodetool|dsetool decommission|drain|removenode|assassinate|clearsnapshot|truncatehints|stopdaemon"
            "|disable*|resetlocalschema",
            "cockroach node|sql|quit decommission|drain|-e",
            "couchbase-cli bucket-delete|bucket-flush|server-remove|rebalance|*-delete|failover|reset*",
            "arangorestore|neo4j-admin|neo4j @--overwrite|--overwrite-destination=true|--force|drop|delete|unbind",
            "vitess|vtctlclient|vtctldclient delete*|remove*|drop*|reset*|terminate*",
            "clickhouse-client|clickhouse @*drop *|*truncate *|*alter*delete*",
            "hdfs|hadoop @-rm|-rmr|-rmdir|-expunge|-delete*|-format",
            "hbase|zkcli.sh|zookeeper-shell|zookeeper-shell.sh @delete*|deleteall|rmr|drop*|disable*|truncate*",
            "sqlplus|rman @*delete*|*drop*",
            "spark-submit|spark|hive|beeline @*drop table*|*drop database*|*drop schema*",
            "memcached|memcflush|memcrm|memctouch|varnishadm @flush_all|ban*|*memc*|stop",
            "memcflush|memcrm",
        ),
        stops=(
            "dropdb shop",
            "rails db:drop",
            "bundle exec rake db:reset",
            "python manage.py flush --noinput",
            "redis-cli -n 1 FLUSHDB",
            "php artisan migrate:fresh",
            "npx prisma migrate reset --force",
            "hdfs dfs -rm -r /data",
            "mix ecto.drop",
        ),
        passes=(
            "createdb shop",
            "rails db:migrate",
            "pg_dump shop",
            "redis-cli get x",
            "npx prisma migrate dev",
            "wp db export",
        ),
    ),
    Rule(
        "search",
        BLOCK,
        "deletes or closes a search index",
        (
            "algolia indices|objects|rules|synonyms|settings|apikeys|index delete|clear|remove|delete-*|clear-*|move",
            "algolia * delete",
            "elasticdump|curator|curator_cli|esrally|es2csv|ecctl @delete*|delete_indices|delete-indices|close"
            "|--delete=true"
            "|--delete",
            "elasticsearch-node|opensearch-node|elasticsearch-shard unsafe-bootstrap|detach-cluster|repurpose|remove-*",
            "elasticsearch-plugin|opensearch-plugin|elasticsearch-users|elasticsearch-keystore remove|userdel",
            "meilisearch|typesense|ms-cli|solr delete|@delete_collection|@delete_core",
            "solr delete|stop",
            "splunk clean|remove|stop|disable|offline",
        ),
        stops=(
            "algolia indices delete products",
            "curator_cli delete_indices",
            "splunk clean eventdata",
            "solr delete -c a",
        ),
        passes=("algolia indices list", "curator_cli show_indices", "solr status"),
    ),
    Rule(
        "queues",
        BLOCK,
        "deletes topics, queues, streams or their data",
        (
            "kafka-*|kafka-*.sh --delete|--remove|--delete-offsets|--reset-offsets|--delete-config|--unregister"
            " !--dry-run",
            "kafka-delete-records*|kafka-leader-election*|kafka-server-stop*|zookeeper-server-stop*|kafka-storage*",
            "kafka-configs* --alter|--add-config @*retention*",
            "kafka-streams-application-reset*",
            "rpk|kcat|kaf|kafkactl|confluent @delete|trim-prefix|delete-records|remove|rm|destroy|decommission",
            "kcctl|ccloud @delete",
            "rabbitmqctl delete_*|purge_queue|reset|force_reset|stop_app|clear_*|forget_cluster_node|stop|close_*"
            "|shutdown"
            "|hard_reset|remove_*|decommission_*|force_boot|cancel_*|disable_*|change_cluster_node_type",
            "rabbitmqadmin @delete|purge|close|delete_*|purge_*",
            "rabbitmq-plugins|rabbitmq-queues|rabbitmq-streams disable|delete_*|shrink|remove_*",
            "nats @rm|del|delete|purge|rmm|remove|evict|restore|unlink|kick|seal|peer-remove|step-down|cluster-down"
            "|stepdown",
            "nsc delete|revocations",
            "pulsar-admin @delete|delete-*|unload|terminate|clear-backlog|remove-*|expire-messages*|skip*"
            "|reset-cursor|unsubscribe",
            "activemq|artemis purge|stop|kill|@delete*|@*purge*|destroy",
            "mosquitto_passwd -D",
            "celery @purge|amqp|shutdown|terminate",
            "celery @queue.purge|queue.delete|exchange.delete",
            "sidekiqctl|rq empty|quiet|stop|@--all",
            "temporal|tctl @terminate|delete|reset|cancel|remove",
        ),
        stops=(
            "kafka-topics --delete --topic t",
            "rabbitmqctl delete_vhost /x",
            "nats stream purge ORDERS",
            "pulsar-admin topics delete t",
            "celery -A app purge -f",
        ),
        passes=(
            "kafka-topics --list",
            "rabbitmqctl list_queues",
            "nats stream ls",
            "celery -A app worker",
            "rpk topic list",
        ),
    ),
    Rule(
        "backups",
        BLOCK,
        "deletes backups or files that exist only at the destination",
        (
            "borg|borgmatic|borg1|borg2 delete|prune|compact|recreate|repo-delete|undelete|break-lock"
            " !--dry-run|-n|--list-only",
            "borg key import|change-*|migrate-*",
            "borg config --delete|-d",
            "restic|rustic|autorestic forget|prune|rewrite !--dry-run|-n",
            "restic|rustic key remove|rm|passwd",
            "restic|rustic unlock --remove-all",
            "restic|rustic cache --cleanup",
            "rclone sync|delete|deletefile|purge|rmdir|rmdirs|move|moveto|cleanup|bisync|dedupe|settier !--dry-run|-n",
            "rclone config delete|disconnect",
            "rclone copy|copyto --delete-empty-src-dirs|--immutable=false",
            "velero @delete|uninstall",
            "ark @delete",
            "duplicity @remove-*|cleanup|remove-all-but-n-full|remove-older-than",
            "duplicity --force",
            "duplicacy prune",
            "kopia snapshot|repository|policy|content|blob|index|user|acl delete|disconnect|expire|rm|remove"
            "|drop|purge|gc",
            "tmutil delete*|disable|thinlocalsnapshots",
            "snapper|timeshift delete|--delete|--delete-all|undochange|rollback",
            "timeshift --delete|--delete-all|--restore",
            "barman|pgbackrest|wal-g|wal-e|xtrabackup delete|expire|stanza-delete|stop|forget|purge",
            "pgbackrest|wal-g|wal-e * delete|everything|retain|before",
            "bareos|bconsole|bacula @*delete*|*purge*|*prune*",
            "attic|bup|obnam|rdiff-backup|tarsnap delete|prune|gc|rm|forget|-d|--nuke",
            "rdiff-backup --remove-older-than|--force",
            "tarsnap -d|--nuke",
            "zfs-auto-snapshot|sanoid|syncoid --prune-snapshots|--force-delete|--force-prune|--destroy",
            "rsync !-n|--dry-run --delete|--del|--delete-before|--delete-during|--delete-after|--delete-excluded",
            "rsync !-n|--dry-run --delete-delay|--delete-missing-args",
            "rsync !-n|--dry-run --remove-source-files",
            "lftp @*--delete*|*mrm *|*rm -r*|*glob -a rm*",
            "unison -force|-batch @*delete*",
            "gdrive|rmapi|dbxcli delete|rm|trash",
        ),
        stops=(
            "rsync -a --delete /src/ /dest/",
            "borg delete repo::a",
            "restic forget --prune x",
            "rclone purge r:b",
            "velero backup delete nightly",
            "kopia snapshot delete x",
            "duplicity remove-older-than 1M file:///b",
        ),
        passes=("rsync -an --delete a b", "borg list", "rclone copy a r:b", "restic snapshots", "velero backup get"),
    ),
)
