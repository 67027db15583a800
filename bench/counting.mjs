/** Counts statements, round trips and commits of a benchmark, through the client. */

/** Counts what goes to a database. A text with two statements is one round trip. */
export class Counter {
  statements = 0;
  trips = 0;
  commits = 0;

  reset() {
    Object.assign(this, { statements: 0, trips: 0, commits: 0 });
  }

  note(text) {
    const parts = text.split(";").filter((part) => part.trim() !== "");
    this.trips += 1;
    this.statements += parts.length;
    if (parts.some((part) => part.trim() === "COMMIT")) this.commits += 1;
  }

  per(calls) {
    const each = (value) => Math.round((value * 100) / calls) / 100;
    const { statements, trips, commits } = this;
    return { statements: each(statements), trips: each(trips), commits: each(commits) };
  }
}

/** A class, as clients have it: the ledger takes plain objects for rows. */
class NotingStatement {
  constructor(text, statement, counter) {
    Object.assign(this, { text, statement, counter });
  }

  run(...values) {
    this.counter.note(this.text);
    return this.statement.run(...values);
  }

  get(...values) {
    this.counter.note(this.text);
    return this.statement.get(...values);
  }

  all(...values) {
    this.counter.note(this.text);
    return this.statement.all(...values);
  }
}

/** A connection to SQLite whose statements are counted. */
export function noting(connection, counter) {
  return {
    exec(text) {
      counter.note(text);
      return connection.exec(text);
    },
    prepare: (text) => new NotingStatement(text, connection.prepare(text), counter),
    close: () => connection.close(),
  };
}
