-- The records of schema 6, which added webhooks.
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE sandboxes (
        name TEXT PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, slot INTEGER NOT NULL UNIQUE,
        state TEXT NOT NULL, body TEXT NOT NULL, UNIQUE (tenant, id)
    ) STRICT;
INSERT INTO sandboxes VALUES('hlrz2bzvcxmvjkitxdj7kdzshe','default','failed',0,'failed','{"v":1,"image":"host","image_resolved":"host","created_at_ms":1795390549275,"create_ms":13.709,"ttl_s":null,"expires_at_ms":null,"metadata":{},"env":{},"limits":{"memory_mib":1024,"cpu_millis":1000,"pids":512,"disk_mib":0},"dialect":{},"cause":"agent killed","sleep_after_s":600,"persistent":true,"lost":null,"exposed":{},"used":{"cpu_us":0,"memory_peak_bytes":0,"oom_kills":0,"awake_ms":42,"since_ms":1795390549317,"counted":false},"network":{"mode":"none"}}');
INSERT INTO sandboxes VALUES('2hjdeup7liysypvbcceldygwxa','default','files',2,'sleeping','{"v":1,"image":"host","image_resolved":"host","created_at_ms":1795390549343,"create_ms":20.941,"ttl_s":null,"expires_at_ms":null,"metadata":{},"env":{},"limits":{"memory_mib":1024,"cpu_millis":1000,"pids":512,"disk_mib":0},"dialect":{},"cause":null,"sleep_after_s":600,"persistent":true,"lost":[],"exposed":{},"used":{"cpu_us":37242,"memory_peak_bytes":1757184,"oom_kills":0,"awake_ms":123,"since_ms":1795390549466,"counted":true},"network":{"mode":"none"}}');
INSERT INTO sandboxes VALUES('3nlxbcplhob4spmyruc63xvidg','default','asleep',3,'sleeping','{"v":1,"image":"host","image_resolved":"host","created_at_ms":1795390549476,"create_ms":9.89,"ttl_s":null,"expires_at_ms":null,"metadata":{},"env":{"A":"b"},"limits":{"memory_mib":1024,"cpu_millis":1000,"pids":512,"disk_mib":0},"dialect":{},"cause":null,"sleep_after_s":600,"persistent":true,"lost":[],"exposed":{},"used":{"cpu_us":13794,"memory_peak_bytes":1183744,"oom_kills":0,"awake_ms":33,"since_ms":1795390549509,"counted":true},"network":{"mode":"none"}}');
INSERT INTO sandboxes VALUES('xl2jldtvrd3w4bx4cbubiggf7a','other','theirs',4,'sleeping','{"v":1,"image":"host","image_resolved":"host","created_at_ms":1795390549530,"create_ms":10.42,"ttl_s":null,"expires_at_ms":null,"metadata":{},"env":{},"limits":{"memory_mib":1024,"cpu_millis":1000,"pids":512,"disk_mib":0},"dialect":{},"cause":null,"sleep_after_s":600,"persistent":true,"lost":[],"exposed":{},"used":{"cpu_us":5049,"memory_peak_bytes":0,"oom_kills":0,"awake_ms":14,"since_ms":1795390549544,"counted":true},"network":{"mode":"none"}}');
INSERT INTO sandboxes VALUES('fuqcvoemwd4bfr6ccttazj7s2f','default','running',5,'running','{"v":1,"image":"host","image_resolved":"host","created_at_ms":1795390549553,"create_ms":15.818,"ttl_s":null,"expires_at_ms":null,"metadata":{},"env":{},"limits":{"memory_mib":1024,"cpu_millis":1000,"pids":512,"disk_mib":0},"dialect":{},"cause":null,"sleep_after_s":600,"persistent":true,"lost":null,"exposed":{"8000":{"secret":"n5obpmcdaavjbx6hzy4d33fjoelubrl3thxmr23swk7gbkfa7xqf","name":null,"created_at_ms":1795390549594}},"used":{"cpu_us":0,"memory_peak_bytes":0,"oom_kills":0,"awake_ms":0,"since_ms":null,"counted":false},"network":{"mode":"none"}}');
CREATE TABLE sessions (
        sandbox TEXT NOT NULL REFERENCES sandboxes (name) ON DELETE CASCADE,
        id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (sandbox, id)
    ) STRICT, WITHOUT ROWID;
INSERT INTO sessions VALUES('3nlxbcplhob4spmyruc63xvidg','dev','{"cwd":"/workspace","env":{},"command_timeout_ms":0,"metadata":{},"created_at_ms":1795390549488,"last_activity_ms":1795390549497}');
INSERT INTO sessions VALUES('fuqcvoemwd4bfr6ccttazj7s2f','dev','{"cwd":"/workspace","env":{},"command_timeout_ms":0,"metadata":{},"created_at_ms":1795390549571,"last_activity_ms":1795390549571}');
CREATE TABLE answers (
        tenant TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, answer TEXT NOT NULL,
        expires_ms INTEGER NOT NULL, PRIMARY KEY (tenant, key)
    ) STRICT, WITHOUT ROWID;
INSERT INTO answers VALUES('default','baseline',X'30eeeb8d2be6358e6c82dc88b3bf98f03f55cc4aaf566903a628a2b5edf20497','{"id":"files","tenant":"default","state":"running","cause":null,"image":"host","image_resolved":"host","created_at_ms":1795390549343,"create_ms":20.941,"ttl_s":null,"expires_at_ms":null,"metadata":{},"env_names":[],"limits":{"memory_mib":1024,"cpu_millis":1000,"pids":512,"disk_mib":0},"network":{"mode":"none"},"lent":[],"persistent":true,"sleep_after_s":600,"dialect":{}}',1795476949364);
CREATE TABLE keys (
        id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, tenant TEXT NOT NULL, label TEXT NOT NULL,
        read_only INTEGER NOT NULL, created_ms INTEGER NOT NULL, expires_ms INTEGER, revoked_ms INTEGER
    , used_ms INTEGER) STRICT;
INSERT INTO keys VALUES('key_7720a97d20a8f01f',X'b75b5f8a42dd1026e1c5dd08dab4e233fcf7bee13d2fd505accdb7a5ef9c686d','other','',0,1795390549524,NULL,NULL,1795390549999);
CREATE TABLE ended (
        n INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, body TEXT NOT NULL
    ) STRICT;
INSERT INTO ended VALUES(1,'default','{"id":"gone","image":"host","cpu_millis":1000,"memory_mib":1024,"create_ms":11.058,"created_at_ms":1795390549322,"destroyed_at_ms":1795390549340,"uptime_ms":18,"awake_ms":12,"cpu_us":5798,"memory_peak_bytes":0}');
CREATE TABLE totals (
        tenant TEXT PRIMARY KEY, count INTEGER NOT NULL, cpu_us INTEGER NOT NULL,
        memory_mib_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
INSERT INTO totals VALUES('default',1,5798,12288);
CREATE TABLE profiles (
        tenant TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (tenant, name)
    ) STRICT, WITHOUT ROWID;
INSERT INTO profiles VALUES('default','web','{"name":"web","description":"","allow":["*:443"],"deny":[]}');
CREATE INDEX answers_expire ON answers (expires_ms);
CREATE INDEX ended_of ON ended (tenant, n);
CREATE TABLE snapshots (
        name TEXT PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL,
        UNIQUE (tenant, id)
    ) STRICT;
INSERT INTO snapshots VALUES('r7x2mhd4kzqe5bwvt3ycagf6nu','default','snap_k3w7qzyhd2m5xv4t6bfnacrjse','{"v":1,"name":"ready","sandbox":"files","metadata":{},"created_at_ms":1795390549400,"expires_at_ms":null,"size_bytes":8192,"frozen_ms":4.25,"lost":[],"settings":{"v":2,"image":"host","image_resolved":"host","created_at_ms":1795390549343,"create_ms":20.941,"ttl_s":null,"expires_at_ms":null,"metadata":{},"env":{},"limits":{"memory_mib":1024,"cpu_millis":1000,"pids":512,"disk_mib":0},"dialect":{},"cause":null,"sleep_after_s":600,"persistent":true,"lost":null,"exposed":{},"used":{"cpu_us":0,"memory_peak_bytes":0,"oom_kills":0,"awake_ms":0,"since_ms":0,"counted":false},"network":{"mode":"none"},"id_base":0},"sessions":[],"temporary":false}');
CREATE TABLE ownership (
        name TEXT PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, suspended INTEGER NOT NULL,
        view TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
INSERT INTO ownership VALUES('fuqcvoemwd4bfr6ccttazj7s2f','default','running',0,'{"class":"node","phase":{"phase":"running","epoch":7,"registration":5}}');
CREATE TABLE webhooks (
        tenant TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (tenant, id)
    ) STRICT, WITHOUT ROWID;
INSERT INTO webhooks VALUES('default','wh_4b8e1f0a6c2d9753e8b1a4f7c0d36295','{"v":1,"url":"https://hooks.example/isolet","events":["sandbox.*"],"sandbox":null,"label":"","enabled":true,"created_at_ms":1795390549600,"generation":0,"secret":{"version":1,"key":"5d0f3c7ab91e2468"},"previous":null}');
CREATE TABLE webhook_progress (
        tenant TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (tenant, id)
    ) STRICT, WITHOUT ROWID;
INSERT INTO webhook_progress VALUES('default','wh_4b8e1f0a6c2d9753e8b1a4f7c0d36295','{"position":{"seq":7,"mark":"9f1c"},"delivered":3,"failures":0}');
COMMIT;
PRAGMA user_version = 6;
