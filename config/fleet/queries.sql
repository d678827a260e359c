-- Queries for IoT Hub (portal: Queries; az iot hub query --query-command "..."), one a paragraph.
-- A module's twin is found under devices.modules; tags of the device are not in it.
-- The answers may be minutes old, and a hub unit allows 20 queries a minute.

-- How is the fleet? One row a state.
SELECT properties.reported.health.state AS state, COUNT() AS devices FROM devices.modules WHERE moduleId = 'slice-healer' GROUP BY properties.reported.health.state

-- Who is not well, and why?
SELECT deviceId, properties.reported.health.state, properties.reported.health.reason, properties.reported.health.since FROM devices.modules WHERE moduleId = 'slice-healer' AND properties.reported.health.state <> 'healthy'

-- Where do wrong answers reach users now?
SELECT deviceId, properties.reported.findings.critical, properties.reported.health.reason FROM devices.modules WHERE moduleId = 'slice-healer' AND properties.reported.findings.critical > 0

-- Who has not reported for an hour (put in the time)? A living module reports at least every 30 minutes.
SELECT deviceId, properties.reported.module.reportedAt FROM devices.modules WHERE moduleId = 'slice-healer' AND properties.reported.module.reportedAt < '2026-12-01T05:00:00Z'

-- What would the first week have done? Candidates for the tag sliceHealer = 'heal'.
SELECT deviceId, properties.reported.heals.shadow, properties.reported.findings.warning FROM devices.modules WHERE moduleId = 'slice-healer' AND properties.reported.module.mode = 'observe' AND properties.reported.heals.shadow > 0

-- Which heals did not help?
SELECT deviceId, properties.reported.heals.failed, properties.reported.heals.last.service, properties.reported.heals.last.outcome FROM devices.modules WHERE moduleId = 'slice-healer' AND properties.reported.heals.failed > 0

-- Whose setting was refused?
SELECT deviceId, properties.reported.settings.mode.ad FROM devices.modules WHERE moduleId = 'slice-healer' AND properties.reported.settings.mode.ac = 400

-- Where may the journal not be read (the host's group number is wrong)?
SELECT deviceId FROM devices.modules WHERE moduleId = 'slice-healer' AND properties.reported.journal.state = 'denied'

-- Where is the cluster out of reach, or refuses a right?
SELECT deviceId, properties.reported.cluster.state FROM devices.modules WHERE moduleId = 'slice-healer' AND properties.reported.cluster.state IN ['unreachable', 'forbidden']

-- Which versions run?
SELECT properties.reported.module.version AS version, COUNT() AS devices FROM devices.modules WHERE moduleId = 'slice-healer' GROUP BY properties.reported.module.version

-- Where does a certificate or token end within 30 days, or has ended? `first` names it as doctor does.
SELECT deviceId, properties.reported.credentials.first, properties.reported.credentials.firstEnds FROM devices.modules WHERE moduleId = 'slice-healer' AND properties.reported.credentials.state IN ['ended', 'ends-within-30-days']

-- What ends when, for the next quarter's work?
SELECT deviceId, properties.reported.credentials.first, properties.reported.credentials.firstEnds FROM devices.modules WHERE moduleId = 'slice-healer' AND properties.reported.credentials.state = 'ends-within-90-days'
