"""What reaches people, and sub-commands of programs nobody listed that say themselves that they destroy."""

from __future__ import annotations

from engine.safety.content.patterns import ASK, Rule

RULES: tuple[Rule, ...] = (
    Rule(
        "message",
        ASK,
        "sends a message to someone",
        (
            "sendmail|mutt|neomutt|swaks|msmtp|ssmtp|mailx|s-nail|sendemail|mpack|telegram-send|apprise|himalaya"
            "|smtp-cli",
            "mail|mailx -s|-r|-a|-A|-b|-c",
            "slack|slack-cli|telegram-cli|discord|twurl|toot|t|signal-cli|twitter|x|bsky|mastodon|matrix-commander"
            "|teams"
            " chat|post|update|send|tweet|toot|dm|message|reply|note",
            "twilio @api:*:create|*messages:create|*calls:create|email:send",
            "aws ses|sesv2|sns|pinpoint|pinpoint-sms-voice|chime send-*|publish*",
            "sendgrid|mailgun|postmark|mailchimp @send|*:send|send*|delete|remove",
            "osascript @*mail*send*|*messages*send*",
            "wall|write|talk|ntfy @*",
        ),
        stops=(
            "mail -s hello a@b.example",
            "aws ses send-email --to a",
            "sendmail x@y.example",
            "mail -r me -s hi you@b.example",
            "twilio api:core:messages:create --body x",
        ),
        passes=("aws sns list-topics", "mail", "cat mail.txt", "slack version"),
    ),
)
