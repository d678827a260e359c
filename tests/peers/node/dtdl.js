// Parses a DTDL file with Microsoft's parser and prints the ids in it; exit code 1 and the parser's errors where it
// is not DTDL. Asks nobody for further models: what a model refers to must be in its file.
'use strict';

const fs = require('node:fs');
const { createParser, ModelParsingOption } = require('@azure/dtdl-parser');

async function main() {
  const interfaces = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
  const parser = createParser(ModelParsingOption.None);
  const found = await parser.parse(interfaces.map((one) => JSON.stringify(one)));
  console.log(Object.keys(found).join('\n'));
}

main().catch((error) => {
  console.error(error, JSON.stringify(error._parsingErrors ?? []));
  process.exitCode = 1;
});
