-- A store of schema 5, as the controller of version 0.1.0 left it when it was killed: jobs in every state on two
-- switches, one of them drained; `shrunk` is in its second epoch, `changing` was on its way to another one.
BEGIN TRANSACTION;
CREATE TABLE configuration (
        content TEXT NOT NULL
    );
INSERT INTO "configuration" VALUES('{"switches": [{"name": "leaf-1", "target": "soft", "address": "127.0.0.1", "p4runtime": "127.0.0.1:41689", "bfrt": "", "program": "switchml", "ports": [], "device_id": -1, "udp_port": 34675, "mac": "00:00:00:00:00:00", "values_per_packet": 64, "slots": 1024, "default_pool": 128, "small_pool": 0, "small_job": 0, "multicast": "", "multicast_port": 1, "tls": "auto"}, {"name": "leaf-2", "target": "soft", "address": "127.0.0.1", "p4runtime": "127.0.0.1:43829", "bfrt": "", "program": "switchml", "ports": [], "device_id": -1, "udp_port": 39107, "mac": "00:00:00:00:00:00", "values_per_packet": 64, "slots": 2048, "default_pool": 128, "small_pool": 0, "small_job": 0, "multicast": "", "multicast_port": 1, "tls": "auto"}], "store": "/var/lib/switchml/controller.sqlite", "tls": "", "insecure": false, "tenants": [], "shared_agents": []}');
CREATE TABLE counters (
        job INTEGER NOT NULL REFERENCES jobs (key),
        name TEXT NOT NULL,
        packets INTEGER NOT NULL,
        PRIMARY KEY (job, name)
    ) WITHOUT ROWID;
INSERT INTO "counters" VALUES(1,'aggregated',0);
INSERT INTO "counters" VALUES(1,'completed',0);
INSERT INTO "counters" VALUES(1,'contributions',0);
INSERT INTO "counters" VALUES(1,'duplicate',0);
INSERT INTO "counters" VALUES(1,'resent',0);
INSERT INTO "counters" VALUES(1,'results',0);
INSERT INTO "counters" VALUES(1,'stale',0);
INSERT INTO "counters" VALUES(1,'wrong_epoch',0);
INSERT INTO "counters" VALUES(2,'aggregated',0);
INSERT INTO "counters" VALUES(2,'completed',0);
INSERT INTO "counters" VALUES(2,'contributions',0);
INSERT INTO "counters" VALUES(2,'duplicate',0);
INSERT INTO "counters" VALUES(2,'resent',0);
INSERT INTO "counters" VALUES(2,'results',0);
INSERT INTO "counters" VALUES(2,'stale',0);
INSERT INTO "counters" VALUES(2,'wrong_epoch',0);
INSERT INTO "counters" VALUES(3,'aggregated',0);
INSERT INTO "counters" VALUES(3,'completed',0);
INSERT INTO "counters" VALUES(3,'contributions',0);
INSERT INTO "counters" VALUES(3,'duplicate',0);
INSERT INTO "counters" VALUES(3,'resent',0);
INSERT INTO "counters" VALUES(3,'results',0);
INSERT INTO "counters" VALUES(3,'stale',0);
INSERT INTO "counters" VALUES(3,'wrong_epoch',0);
INSERT INTO "counters" VALUES(4,'aggregated',0);
INSERT INTO "counters" VALUES(4,'completed',0);
INSERT INTO "counters" VALUES(4,'contributions',0);
INSERT INTO "counters" VALUES(4,'duplicate',0);
INSERT INTO "counters" VALUES(4,'resent',0);
INSERT INTO "counters" VALUES(4,'results',0);
INSERT INTO "counters" VALUES(4,'stale',0);
INSERT INTO "counters" VALUES(4,'wrong_epoch',0);
INSERT INTO "counters" VALUES(7,'aggregated',0);
INSERT INTO "counters" VALUES(7,'completed',0);
INSERT INTO "counters" VALUES(7,'contributions',0);
INSERT INTO "counters" VALUES(7,'duplicate',0);
INSERT INTO "counters" VALUES(7,'resent',0);
INSERT INTO "counters" VALUES(7,'results',0);
INSERT INTO "counters" VALUES(7,'stale',0);
INSERT INTO "counters" VALUES(7,'wrong_epoch',0);
INSERT INTO "counters" VALUES(8,'aggregated',0);
INSERT INTO "counters" VALUES(8,'completed',0);
INSERT INTO "counters" VALUES(8,'contributions',0);
INSERT INTO "counters" VALUES(8,'duplicate',0);
INSERT INTO "counters" VALUES(8,'resent',0);
INSERT INTO "counters" VALUES(8,'results',0);
INSERT INTO "counters" VALUES(8,'stale',0);
INSERT INTO "counters" VALUES(8,'wrong_epoch',0);
CREATE TABLE drained_switches (
        switch TEXT PRIMARY KEY
    ) WITHOUT ROWID;
INSERT INTO "drained_switches" VALUES('leaf-2');
CREATE TABLE epoch_changes (
        job INTEGER NOT NULL REFERENCES jobs (key),
        epoch INTEGER NOT NULL,
        workers INTEGER NOT NULL,
        lost TEXT NOT NULL,
        joined TEXT NOT NULL,
        reason TEXT NOT NULL,
        time REAL NOT NULL
    );
INSERT INTO "epoch_changes" VALUES(4,4,3,'0','','rank 0 was lost: agent host-1 on here says: its process was killed',1.79537496877228593822e+09);
CREATE TABLE epochs (
        switch TEXT PRIMARY KEY,
        last INTEGER NOT NULL
    ) WITHOUT ROWID;
INSERT INTO "epochs" VALUES('leaf-1',7);
INSERT INTO "epochs" VALUES('leaf-2',4);
CREATE TABLE events (
        number INTEGER PRIMARY KEY,
        time REAL NOT NULL,
        kind TEXT NOT NULL,
        level TEXT NOT NULL,
        job_key INTEGER NOT NULL,
        job INTEGER NOT NULL,
        job_name TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        rank INTEGER,
        agent TEXT NOT NULL,
        switch TEXT NOT NULL,
        actor TEXT NOT NULL,
        detail TEXT NOT NULL
    );
INSERT INTO "events" VALUES(1,1.79537496806674885755e+09,'controller-started','info',0,0,'',0,NULL,'','','operator','version 0.1.0, listens on 127.0.0.1:35949 without TLS');
INSERT INTO "events" VALUES(2,1.79537496816430044172e+09,'switch-connected','info',0,0,'',0,NULL,'','leaf-2','','as its primary');
INSERT INTO "events" VALUES(3,1795374968.16822,'switch-connected','info',0,0,'',0,NULL,'','leaf-1','','as its primary');
INSERT INTO "events" VALUES(4,1.79537496818923234939e+09,'agent-connected','info',0,0,'',0,NULL,'host-1','leaf-1','ipv4:127.0.0.1:58704','on here');
INSERT INTO "events" VALUES(5,1.79537496820722699162e+09,'agent-connected','info',0,0,'',0,NULL,'host-2','leaf-1','ipv4:127.0.0.1:58704','on here');
INSERT INTO "events" VALUES(6,1.79537496823035621642e+09,'agent-connected','info',0,0,'',0,NULL,'host-3','leaf-2','ipv4:127.0.0.1:58704','on here');
INSERT INTO "events" VALUES(7,1.79537496825283861157e+09,'job-started','info',1,1,'completed',1,NULL,'','leaf-1','operator on host-0 at ipv4:127.0.0.1:58690','2 ranks, 128 slots');
INSERT INTO "events" VALUES(8,1.79537496826011538507e+09,'job-ready','info',1,1,'completed',1,NULL,'','leaf-1','operator on host-0 at ipv4:127.0.0.1:58690','');
INSERT INTO "events" VALUES(9,1.79537496826222825051e+09,'rank-attached','info',1,1,'completed',1,0,'host-1','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(10,1.7953749682623305321e+09,'job-running','info',1,1,'completed',1,NULL,'','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(11,1.79537496826287698743e+09,'rank-attached','info',1,1,'completed',1,1,'host-2','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(12,1.79537496826847314834e+09,'rank-closed','info',1,1,'completed',1,0,'host-1','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(13,1.79537496826923561091e+09,'rank-closed','info',1,1,'completed',1,1,'host-2','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(14,1.79537496826937294008e+09,'job-completed','info',1,1,'completed',1,NULL,'','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(15,1.795374968286180973e+09,'job-started','info',2,2,'stopped',1,NULL,'','leaf-2','operator on host-0 at ipv4:127.0.0.1:58690','1 ranks, 128 slots');
INSERT INTO "events" VALUES(16,1.79537496829229331011e+09,'job-ready','info',2,2,'stopped',1,NULL,'','leaf-2','operator on host-0 at ipv4:127.0.0.1:58690','');
INSERT INTO "events" VALUES(17,1.79537496829430460931e+09,'job-stopped','info',2,2,'stopped',1,NULL,'','leaf-2','operator on host-0 at ipv4:127.0.0.1:58690','');
INSERT INTO "events" VALUES(18,1.79537496830143022538e+09,'job-started','info',3,3,'failed',2,NULL,'','leaf-1','operator on host-0 at ipv4:127.0.0.1:58690','2 ranks, 64 slots');
INSERT INTO "events" VALUES(19,1.79537496830716776846e+09,'job-ready','info',3,3,'failed',2,NULL,'','leaf-1','operator on host-0 at ipv4:127.0.0.1:58690','');
INSERT INTO "events" VALUES(20,1795374968.30888,'rank-attached','info',3,3,'failed',2,1,'host-2','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(21,1.79537496830897021294e+09,'job-running','info',3,3,'failed',2,NULL,'','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(22,1.7953749683093862534e+09,'rank-attached','info',3,3,'failed',2,0,'host-1','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(23,1.79537496869963264468e+09,'rank-lost','error',3,3,'failed',2,1,'host-2','leaf-1','ipv4:127.0.0.1:58704','agent host-2 on here says: its process was killed');
INSERT INTO "events" VALUES(24,1.79537496869984793666e+09,'job-failed','error',3,3,'failed',2,NULL,'','leaf-1','ipv4:127.0.0.1:58704','rank 1 was lost: agent host-2 on here says: its process was killed');
INSERT INTO "events" VALUES(25,1.79537496873143100732e+09,'rank-exited','info',3,3,'failed',2,1,'host-2','leaf-1','operator on host-0 at ipv4:127.0.0.1:58690','status 137');
INSERT INTO "events" VALUES(26,1.79537496873799347872e+09,'job-started','info',4,4,'shrunk',3,NULL,'','leaf-1','operator on host-0 at ipv4:127.0.0.1:58690','4 ranks, 128 slots');
INSERT INTO "events" VALUES(27,1.79537496875773358345e+09,'job-ready','info',4,4,'shrunk',3,NULL,'','leaf-1','operator on host-0 at ipv4:127.0.0.1:58690','');
INSERT INTO "events" VALUES(28,1.7953749687629008293e+09,'rank-attached','info',4,4,'shrunk',3,0,'host-1','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(29,1.79537496876303029067e+09,'job-running','info',4,4,'shrunk',3,NULL,'','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(30,1.79537496876364064215e+09,'rank-attached','info',4,4,'shrunk',3,2,'host-2','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(31,1.79537496876417708392e+09,'rank-attached','info',4,4,'shrunk',3,1,'host-1','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(32,1.79537496876478767397e+09,'rank-attached','info',4,4,'shrunk',3,3,'host-2','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(33,1.79537496876768517496e+09,'rank-lost','error',4,4,'shrunk',3,0,'host-1','leaf-1','ipv4:127.0.0.1:58704','agent host-1 on here says: its process was killed');
INSERT INTO "events" VALUES(34,1.79537496878058719634e+09,'epoch-changed','warning',4,4,'shrunk',4,NULL,'','leaf-1','ipv4:127.0.0.1:58704','3 ranks go on: rank 0 was lost: agent host-1 on here says: its process was killed');
INSERT INTO "events" VALUES(35,1.7953749688019878865e+09,'job-started','info',5,5,'2',2,NULL,'','leaf-2','operator on host-0 at ipv4:127.0.0.1:58690','2 ranks, 256 slots');
INSERT INTO "events" VALUES(36,1.79537496880846500395e+09,'job-ready','info',5,5,'2',2,NULL,'','leaf-2','operator on host-0 at ipv4:127.0.0.1:58690','');
INSERT INTO "events" VALUES(37,1.79537496881097030643e+09,'job-started','info',6,6,'running',5,NULL,'','leaf-1','operator on host-0 at ipv4:127.0.0.1:58690','3 ranks, 32 slots');
INSERT INTO "events" VALUES(38,1.79537496881624960903e+09,'job-ready','info',6,6,'running',5,NULL,'','leaf-1','operator on host-0 at ipv4:127.0.0.1:58690','');
INSERT INTO "events" VALUES(39,1.79537496881798791883e+09,'rank-attached','info',6,6,'running',5,0,'host-1','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(40,1.79537496881808352477e+09,'job-running','info',6,6,'running',5,NULL,'','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(41,1.79537496881894159317e+09,'rank-attached','info',6,6,'running',5,2,'host-2','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(42,1.79537496881936311718e+09,'rank-attached','info',6,6,'running',5,1,'host-1','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(43,1.79537496883205461499e+09,'job-started','info',7,7,'ended',3,NULL,'','leaf-2','operator on host-0 at ipv4:127.0.0.1:58690','1 ranks, 128 slots');
INSERT INTO "events" VALUES(44,1.79537496884105873115e+09,'job-ready','info',7,7,'ended',3,NULL,'','leaf-2','operator on host-0 at ipv4:127.0.0.1:58690','');
INSERT INTO "events" VALUES(45,1.79537496884289693834e+09,'rank-exited','info',7,7,'ended',3,0,'host-3','leaf-2','operator on host-0 at ipv4:127.0.0.1:58690','status 0');
INSERT INTO "events" VALUES(46,1.79537496884291791917e+09,'rank-closed','info',7,7,'ended',3,0,'host-3','leaf-2','operator on host-0 at ipv4:127.0.0.1:58690','');
INSERT INTO "events" VALUES(47,1.79537496884301400182e+09,'job-completed','info',7,7,'ended',3,NULL,'','leaf-2','operator on host-0 at ipv4:127.0.0.1:58690','');
INSERT INTO "events" VALUES(48,1.79537496885171318056e+09,'job-started','info',8,8,'changing',6,NULL,'','leaf-1','operator on host-0 at ipv4:127.0.0.1:58690','2 ranks, 128 slots');
INSERT INTO "events" VALUES(49,1.79537496885751605034e+09,'job-ready','info',8,8,'changing',6,NULL,'','leaf-1','operator on host-0 at ipv4:127.0.0.1:58690','');
INSERT INTO "events" VALUES(50,1.79537496885933542251e+09,'rank-attached','info',8,8,'changing',6,0,'host-1','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(51,1.79537496885942602156e+09,'job-running','info',8,8,'changing',6,NULL,'','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(52,1.79537496886018180849e+09,'rank-attached','info',8,8,'changing',6,1,'host-2','leaf-1','ipv4:127.0.0.1:58704','');
INSERT INTO "events" VALUES(53,1795374968.86653,'rank-lost','error',8,8,'changing',6,1,'host-2','leaf-1','ipv4:127.0.0.1:58704','agent host-2 on here says: its process was killed');
INSERT INTO "events" VALUES(54,1.79537496888990807529e+09,'job-started','info',9,9,'starting',4,NULL,'','leaf-2','operator on host-0 at ipv4:127.0.0.1:58690','1 ranks, 128 slots');
INSERT INTO "events" VALUES(55,1.79537496889224147799e+09,'switch-drained','warning',0,0,'',0,NULL,'','leaf-2','operator on host-0 at ipv4:127.0.0.1:58690','2 jobs on it');
CREATE TABLE jobs (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id INTEGER NOT NULL,
        name TEXT NOT NULL,
        workers INTEGER NOT NULL,
        switch TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        slot_base INTEGER NOT NULL,
        slots INTEGER NOT NULL,
        values_per_packet INTEGER NOT NULL,
        created REAL NOT NULL,
        state INTEGER NOT NULL,
        failure TEXT NOT NULL,
        ended REAL NOT NULL
    , on_failure INTEGER NOT NULL DEFAULT 0, generation INTEGER NOT NULL DEFAULT 0, changing INTEGER NOT NULL DEFAULT 0, tenant TEXT NOT NULL DEFAULT '', secret INTEGER NOT NULL DEFAULT 0);
INSERT INTO "jobs" VALUES(1,1,'completed',2,'leaf-1',1,0,128,64,1.79537496825210905076e+09,4,'',1.79537496826929020886e+09,0,0,0,'',1521648715);
INSERT INTO "jobs" VALUES(2,2,'stopped',1,'leaf-2',1,0,128,64,1.79537496828559780116e+09,6,'',1.79537496829422354698e+09,0,0,0,'',2655571485);
INSERT INTO "jobs" VALUES(3,3,'failed',2,'leaf-1',2,0,64,64,1.79537496830094623562e+09,5,'rank 1 was lost: agent host-2 on here says: its process was killed; the process of rank 1 exited with status 137',1.7953749686997077465e+09,0,0,0,'',2102427705);
INSERT INTO "jobs" VALUES(4,4,'shrunk',3,'leaf-1',4,0,128,64,1.79537496873598980901e+09,3,'',0.0,1,1,0,'',4101335995);
INSERT INTO "jobs" VALUES(5,5,'2',2,'leaf-2',2,0,256,64,1.79537496879988241194e+09,2,'',0.0,0,0,0,'',4178210834);
INSERT INTO "jobs" VALUES(6,6,'running',3,'leaf-1',5,128,32,64,1.79537496881044626242e+09,3,'',0.0,0,0,0,'',3449381244);
INSERT INTO "jobs" VALUES(7,7,'ended',1,'leaf-2',3,256,128,64,1.79537496882548880576e+09,4,'',1.79537496884294557573e+09,0,0,0,'',604715331);
INSERT INTO "jobs" VALUES(8,8,'changing',2,'leaf-1',6,256,128,64,1.79537496885119867329e+09,3,'',0.0,2,0,1,'',927278538);
INSERT INTO "jobs" VALUES(9,9,'starting',1,'leaf-2',4,256,128,64,1.79537496888924789431e+09,1,'',0.0,0,0,0,'',814338995);
CREATE TABLE leadership (
        term INTEGER NOT NULL
    );
INSERT INTO "leadership" VALUES(1);
CREATE TABLE ranks (
        job INTEGER NOT NULL REFERENCES jobs (key),
        rank INTEGER NOT NULL,
        agent TEXT NOT NULL,
        instance TEXT NOT NULL,
        host TEXT NOT NULL,
        socket TEXT NOT NULL,
        switch_port INTEGER NOT NULL,
        mac TEXT NOT NULL,
        state INTEGER NOT NULL,
        address TEXT NOT NULL,
        udp_port INTEGER NOT NULL,
        position INTEGER NOT NULL,
        exit_code INTEGER,
        counters BLOB NOT NULL, worker INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (job, rank)
    ) WITHOUT ROWID;
INSERT INTO "ranks" VALUES(1,0,'host-1','instance-1','here','/run/host-1.sock',1,'00:00:00:00:00:00',3,'127.0.0.1',40000,0,NULL,X'',0);
INSERT INTO "ranks" VALUES(1,1,'host-2','instance-2','here','/run/host-2.sock',1,'00:00:00:00:00:00',3,'127.0.0.1',40001,0,NULL,X'',1);
INSERT INTO "ranks" VALUES(2,0,'host-3','instance-3','here','/run/host-3.sock',1,'00:00:00:00:00:00',1,'127.0.0.1',40000,0,NULL,X'',0);
INSERT INTO "ranks" VALUES(3,0,'host-1','instance-1','here','/run/host-1.sock',1,'00:00:00:00:00:00',2,'127.0.0.1',40000,1234,NULL,X'08D80910D209180631FCA9F1D24D62303F',0);
INSERT INTO "ranks" VALUES(3,1,'host-2','instance-2','here','/run/host-2.sock',1,'00:00:00:00:00:00',4,'127.0.0.1',40001,0,137,X'',1);
INSERT INTO "ranks" VALUES(4,0,'host-1','instance-1','here','/run/host-1.sock',1,'00:00:00:00:00:00',2,'127.0.0.1',40000,0,NULL,X'',1);
INSERT INTO "ranks" VALUES(4,1,'host-2','instance-2','here','/run/host-2.sock',1,'00:00:00:00:00:00',2,'127.0.0.1',40001,0,NULL,X'',2);
INSERT INTO "ranks" VALUES(4,2,'host-2','instance-2','here','/run/host-2.sock',1,'00:00:00:00:00:00',2,'127.0.0.1',40002,0,NULL,X'',3);
INSERT INTO "ranks" VALUES(5,0,'host-3','instance-3','here','/run/host-3.sock',1,'00:00:00:00:00:00',1,'127.0.0.1',40000,0,NULL,X'',0);
INSERT INTO "ranks" VALUES(5,1,'host-3','instance-3','here','/run/host-3.sock',1,'00:00:00:00:00:00',1,'127.0.0.1',40001,0,NULL,X'',1);
INSERT INTO "ranks" VALUES(6,0,'host-1','instance-1','here','/run/host-1.sock',1,'00:00:00:00:00:00',2,'127.0.0.1',40000,0,NULL,X'',0);
INSERT INTO "ranks" VALUES(6,1,'host-1','instance-1','here','/run/host-1.sock',1,'00:00:00:00:00:00',2,'127.0.0.1',40001,0,NULL,X'',1);
INSERT INTO "ranks" VALUES(6,2,'host-2','instance-2','here','/run/host-2.sock',1,'00:00:00:00:00:00',2,'127.0.0.1',40002,0,NULL,X'',2);
INSERT INTO "ranks" VALUES(7,0,'host-3','instance-3','here','/run/host-3.sock',1,'00:00:00:00:00:00',3,'127.0.0.1',40000,0,0,X'',0);
INSERT INTO "ranks" VALUES(8,0,'host-1','instance-1','here','/run/host-1.sock',1,'00:00:00:00:00:00',2,'127.0.0.1',40000,0,NULL,X'',0);
INSERT INTO "ranks" VALUES(8,1,'host-2','instance-2','here','/run/host-2.sock',1,'00:00:00:00:00:00',4,'127.0.0.1',40001,0,NULL,X'',1);
INSERT INTO "ranks" VALUES(9,0,'host-3','instance-3','here','/run/host-3.sock',1,'00:00:00:00:00:00',1,'',0,0,NULL,X'',0);
CREATE TABLE transitions (
        job INTEGER NOT NULL REFERENCES jobs (key),
        from_state INTEGER,
        to_state INTEGER NOT NULL,
        reason TEXT NOT NULL,
        time REAL NOT NULL
    );
INSERT INTO "transitions" VALUES(1,NULL,1,'',1.79537496825210905076e+09);
INSERT INTO "transitions" VALUES(1,1,2,'',1.79537496826029086115e+09);
INSERT INTO "transitions" VALUES(1,2,3,'',1.79537496826239323616e+09);
INSERT INTO "transitions" VALUES(1,3,4,'',1.79537496826929020886e+09);
INSERT INTO "transitions" VALUES(2,NULL,1,'',1.79537496828559780116e+09);
INSERT INTO "transitions" VALUES(2,1,2,'',1.795374968292570591e+09);
INSERT INTO "transitions" VALUES(2,2,6,'',1.79537496829422354698e+09);
INSERT INTO "transitions" VALUES(3,NULL,1,'',1.79537496830094623562e+09);
INSERT INTO "transitions" VALUES(3,1,2,'',1.79537496830723190309e+09);
INSERT INTO "transitions" VALUES(3,2,3,'',1.79537496830902457232e+09);
INSERT INTO "transitions" VALUES(3,3,5,'rank 1 was lost: agent host-2 on here says: its process was killed',1.7953749686997077465e+09);
INSERT INTO "transitions" VALUES(4,NULL,1,'',1.79537496873598980901e+09);
INSERT INTO "transitions" VALUES(4,1,2,'',1.79537496875781750677e+09);
INSERT INTO "transitions" VALUES(4,2,3,'',1.79537496876314425471e+09);
INSERT INTO "transitions" VALUES(5,NULL,1,'',1.79537496879988241194e+09);
INSERT INTO "transitions" VALUES(5,1,2,'',1.79537496880853295324e+09);
INSERT INTO "transitions" VALUES(6,NULL,1,'',1.79537496881044626242e+09);
INSERT INTO "transitions" VALUES(6,1,2,'',1.79537496881631445885e+09);
INSERT INTO "transitions" VALUES(6,2,3,'',1.79537496881813788416e+09);
INSERT INTO "transitions" VALUES(7,NULL,1,'',1.79537496882548880576e+09);
INSERT INTO "transitions" VALUES(7,1,2,'',1.79537496884112429619e+09);
INSERT INTO "transitions" VALUES(7,2,4,'',1.79537496884294557573e+09);
INSERT INTO "transitions" VALUES(8,NULL,1,'',1.79537496885119867329e+09);
INSERT INTO "transitions" VALUES(8,1,2,'',1.79537496885757899287e+09);
INSERT INTO "transitions" VALUES(8,2,3,'',1.79537496885948133461e+09);
INSERT INTO "transitions" VALUES(9,NULL,1,'',1.79537496888924789431e+09);
CREATE INDEX jobs_by_id ON jobs (id);
CREATE INDEX jobs_by_name ON jobs (name);
CREATE INDEX jobs_by_state ON jobs (state);
CREATE INDEX transitions_by_job ON transitions (job);
CREATE INDEX epoch_changes_by_job ON epoch_changes (job);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('jobs',9);
COMMIT;
PRAGMA user_version = 5;
